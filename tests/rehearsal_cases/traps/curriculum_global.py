"""The strength of the augmentation is a global variable, which the training loop sets.

expected: not faster with persistent_workers
danger: persistent_workers. Workers see the global as it was when they started.
observed: all epochs have the pictures of the first (cutout 0.0); accuracy 0.742 instead of 0.588.
"""

import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

STRENGTH = 0.0
EPOCHS = 10


class Faces(Dataset):
    def __init__(self, count):
        self.images = torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        self.labels = (self.images.mean((1, 2, 3)) > 0.5).long()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].clone()
        time.sleep(0.0015)
        size = int(STRENGTH * 16)
        if size:
            image[:, :size, :size] = 0  # cutout
        return image, self.labels[index]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.fc = torch.nn.Linear(16 * 64, 2)

    def forward(self, x):
        return self.fc(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


def main():
    global STRENGTH
    torch.manual_seed(3)
    loader = DataLoader(Faces(640), batch_size=20, shuffle=True)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        STRENGTH = epoch / EPOCHS
        correct = 0
        for image, label in loader:
            out = net(image)
            loss = F.cross_entropy(out, label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            correct += (out.argmax(1) == label).sum().item()
        print(f"{epoch}: cutout {STRENGTH:.1f}, accuracy {correct / 640:.3f}")


if __name__ == "__main__":
    main()
