# Dense detection head (RetinaNet's) on cached pyramid features: channels last, bf16, compiled.
import os

import torch
from torch import nn

tiny = os.environ.get("TINY")
C, CLASSES, ANCHORS = (8, 4, 2) if tiny else (256, 16, 4)
B, SIDE = (2, 8) if tiny else (48, 80)
dev = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
torch.manual_seed(11)


class Head(nn.Module):
    def __init__(self):
        super().__init__()

        def tower(out):
            layers = []
            for _ in range(4):
                layers += [nn.Conv2d(C, C, 3, padding=1), nn.ReLU(inplace=True)]
            return nn.Sequential(*layers, nn.Conv2d(C, out, 3, padding=1))

        self.classes, self.boxes = tower(ANCHORS * CLASSES), tower(ANCHORS * 4)

    def forward(self, features, labels, targets):
        with torch.autocast(dev, torch.bfloat16):
            scores, boxes = self.classes(features), self.boxes(features)
        scores, boxes = scores.float(), boxes.float()
        p = scores.sigmoid()
        cross = nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="none")
        right = p * labels + (1 - p) * (1 - labels)
        focal = (cross * (1 - right).square() * (0.25 * labels + 0.75 * (1 - labels))).mean()
        return 100 * focal + nn.functional.smooth_l1_loss(boxes, targets)


head = Head().to(dev, memory_format=torch.channels_last)
step_loss = head if tiny else torch.compile(head)
optimizer = torch.optim.SGD(
    head.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=dev == "cuda"
)


def maps(channels, dtype=torch.float32):
    made = torch.randn(2 * B, channels, SIDE, SIDE, device=dev, dtype=dtype)
    return made.contiguous(memory_format=torch.channels_last).split(B)


features = maps(C, torch.bfloat16)
labels = [(m > 2.5).float() for m in maps(ANCHORS * CLASSES)]
targets = maps(ANCHORS * 4)
for step in range(int(os.environ.get("STEPS", 150))):
    loss = step_loss(features[step % 2], labels[step % 2], targets[step % 2])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
print("final", loss.item())
