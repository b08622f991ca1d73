"""Train a small convolutional network on made-up images: an ordinary script, tuned by nobody.

    python examples/train_cnn.py --epochs 1

It needs nothing but torch, downloads nothing, and runs on a GPU where there is one. The images
are drawn once and augmented each time they are read, as in most training on images.
"""

import argparse
import math
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

CLASSES = 10


class Textures(Dataset):
    """Noisy images of ten textures, augmented anew each time they are read."""

    def __init__(self, count, size):
        self.size = size
        self.labels = torch.randint(CLASSES, (count,))
        coarse = torch.rand(CLASSES, 3, 8, 8)
        textures = functional.interpolate(coarse, size=(2 * size, 2 * size), mode="bicubic")
        noise = torch.randn(count, 3, 2 * size, 2 * size)
        images = textures[self.labels] + 0.3 * noise
        self.images = (images.clamp(0, 1) * 255).to(torch.uint8)
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].float() / 255
        for augment in (rotate, self.crop, flip, jitter):
            image = augment(image)
        return self.erase((image - self.mean) / self.std), self.labels[index]

    def crop(self, image):
        """Cut out a random square and resize it."""
        stored = image.shape[-1]
        side = int(torch.randint(stored // 2, stored + 1, ()))
        top, left = torch.randint(stored - side + 1, (2,)).tolist()
        part = image[None, :, top : top + side, left : left + side]
        return functional.interpolate(
            part, size=(self.size, self.size), mode="bilinear", antialias=True
        )[0]

    def erase(self, image):
        side = self.size // 4
        top, left = torch.randint(self.size - side, (2,)).tolist()
        image[:, top : top + side, left : left + side] = 0
        return image


def rotate(image):
    angle = float(torch.empty(()).uniform_(-0.3, 0.3))
    sine, cosine = math.sin(angle), math.cos(angle)
    turn = torch.tensor([[[cosine, -sine, 0.0], [sine, cosine, 0.0]]])
    grid = functional.affine_grid(turn, [1, *image.shape], align_corners=False)
    return functional.grid_sample(image[None], grid, align_corners=False)[0]


def flip(image):
    return image.flip(-1) if torch.rand(()) < 0.5 else image


def jitter(image):
    """Change brightness, contrast and saturation."""
    brightness, contrast, saturation = (0.6 + 0.8 * torch.rand(3)).tolist()
    image = image * brightness
    image = (image - image.mean()) * contrast + image.mean()
    grey = image.mean(0, keepdim=True)
    return ((image - grey) * saturation + grey).clamp(0, 1)


class Block(nn.Module):
    """Two convolutions with a short cut around them."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.short_cut = nn.Conv2d(inputs, outputs, 1, stride=2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(3))

    def forward(self, x):
        y = functional.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return functional.relu(y + self.norms[2](self.short_cut(x)))


def network(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width * 2),
        Block(width * 2, width * 4),
        Block(width * 4, width * 8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width * 8, CLASSES),
    )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--images", type=int, default=3200, help="images in an epoch")
    parser.add_argument("--size", type=int, default=32, help="width and height in pixels")
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main():
    args = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = Textures(args.images, args.size)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
    model = network(args.width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        began, total = time.perf_counter(), 0.0
        for batch, (images, labels) in enumerate(loader, start=1):
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if batch % 20 == 0:
                print(f"epoch {epoch} batch {batch}/{len(loader)} loss {total / batch:.3f}")
        print(f"epoch {epoch}: {len(dataset) / (time.perf_counter() - began):.0f} images/s")


if __name__ == "__main__":
    main()
