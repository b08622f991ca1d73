"""Train a small convolutional network on photos: an ordinary script, tuned by nobody.

    python examples/train_cnn.py --epochs 1

It needs torch and numpy, downloads nothing, and runs on a GPU where there is one. The photos are
drawn when it starts and kept as PNG files are, in memory. Each time a sample is read its photo is
decoded, cropped at random and augmented, as in most training on images.
"""

import argparse
import struct
import time
import zlib
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encode_png(image):
    """Return a height x width x 3 tensor of bytes as a PNG file, with unfiltered rows."""
    height, width, _ = image.shape
    rows = torch.cat([image.new_zeros(height, 1), image.reshape(height, -1)], dim=1)
    deflate = zlib.compressobj(1, strategy=zlib.Z_HUFFMAN_ONLY)
    pixels = deflate.compress(rows.numpy()) + deflate.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def decode_png(file):
    """Return a PNG file of `encode_png` as a 3 x height x width tensor of bytes."""
    place, pixels = len(SIGNATURE), b""
    while place < len(file):
        (length,) = struct.unpack_from(">I", file, place)
        kind, data = file[place + 4 : place + 8], file[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width, height = struct.unpack_from(">II", data)
        elif kind == b"IDAT":
            pixels += data
        place += 12 + length
    rows = torch.frombuffer(bytearray(zlib.decompress(pixels)), dtype=torch.uint8)
    return rows.view(height, 1 + 3 * width)[:, 1:].unflatten(1, (width, 3)).permute(2, 0, 1)


class Photos(Dataset):
    """Random crops of photos in ten textures; each photo gives `crops` samples an epoch."""

    def __init__(self, photos, side, crops, size):
        self.crops, self.size = crops, size
        self.labels = torch.randint(CLASSES, (photos,)).tolist()
        coarse = torch.rand(CLASSES, 3, 12, 12)
        smooth = functional.interpolate(coarse, size=(side, side), mode="bicubic").clamp(0, 1)
        textures = (215 * smooth).to(torch.uint8).permute(0, 2, 3, 1)
        noise = partial(torch.randint, 40, (side, side, 3), dtype=torch.uint8)
        self.files = [encode_png(textures[label] + noise()) for label in self.labels]
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self):
        return len(self.files) * self.crops

    def __getitem__(self, index):
        photo = index // self.crops
        image = self.crop(decode_png(self.files[photo]))
        image = jitter(flip(image))
        return (image - self.mean) / self.std, self.labels[photo]

    def crop(self, image):
        """Cut out a random square and resize it."""
        side = int(torch.randint(self.size, 4 * self.size, ()))
        top = int(torch.randint(image.shape[1] - side + 1, ()))
        left = int(torch.randint(image.shape[2] - side + 1, ()))
        part = image[None, :, top : top + side, left : left + side].float() / 255
        return functional.interpolate(part, size=(self.size, self.size), mode="bilinear")[0]


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
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--photos", type=int, default=16, help="photos that are drawn")
    parser.add_argument("--side", type=int, default=512, help="width and height of a photo")
    parser.add_argument("--crops", type=int, default=150, help="samples of each photo in an epoch")
    parser.add_argument("--size", type=int, default=32, help="width and height of a sample")
    parser.add_argument("--width", type=int, default=8, help="channels of the first layer")
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)  # as torchrun does: so small a model only waits for more
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = Photos(args.photos, args.side, args.crops, args.size)
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
