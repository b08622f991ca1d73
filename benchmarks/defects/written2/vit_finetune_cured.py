"""Fine-tune a ViT-B/16 on pets (timm)."""

import os

import timm
import torch
from torch import nn


class Trainer:
    def __init__(self, tiny: bool):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.size, self.batch = (32, 2) if tiny else (224, 128)
        name = "vit_tiny_patch16_224" if tiny else "vit_base_patch16_224"
        model = timm.create_model(name, num_classes=37, img_size=self.size)
        self.model = model.to(self.device)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=5e-5, weight_decay=0.05, fused=self.device.type == "cuda"
        )
        shape = (6, self.batch, 3, self.size, self.size)
        self.images = torch.randint(0, 256, shape, dtype=torch.uint8, device=self.device)
        self.labels = torch.randint(0, 37, shape[:2], device=self.device)

    def batch_of(self, step: int):
        images = self.images[step % 6].to(torch.bfloat16).div_(127.5).sub_(1)
        return images, self.labels[step % 6]

    def step(self, step: int) -> torch.Tensor:
        images, labels = self.batch_of(step)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = self.criterion(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, steps: int) -> None:
        self.model.train()
        for step in range(steps):
            loss = self.step(step)
            if step % 50 == 0:
                print("step", step, "loss", loss.item())
        print("final", loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(bool(os.environ.get("TINY"))).fit(int(os.environ.get("STEPS", 120)))
