"""Speech recognition: log-mel features, a convolutional front end, GRUs and CTC."""

import os

import torch
from torch import nn
from torch.nn import functional as F

tiny = os.environ.get("TINY", "") != ""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RATE = 16000
SECONDS = 1 if tiny else 12
BATCH = 2 if tiny else 32
HIDDEN = 16 if tiny else 512
N_FFT, HOP, MELS = 400, 160, 80


def mel_filters():
    def to_mel(f):
        return 2595 * torch.log10(1 + f / 700)

    freqs = torch.linspace(0, RATE / 2, N_FFT // 2 + 1)
    top = to_mel(torch.tensor(RATE / 2.0))
    points = 700 * (10 ** (torch.linspace(0, top.item(), MELS + 2) / 2595) - 1)
    up = (freqs[None] - points[:-2, None]) / (points[1:-1] - points[:-2])[:, None]
    down = (points[2:, None] - freqs[None]) / (points[2:] - points[1:-1])[:, None]
    return torch.minimum(up, down).clamp(min=0)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT))
        self.register_buffer("filters", mel_filters())

    def forward(self, wave):
        spec = torch.stft(wave, N_FFT, HOP, window=self.window, return_complex=True)
        mel = self.filters @ spec.abs().square()
        feats = torch.log(mel + 1e-6)
        return (feats - feats.mean(-1, keepdim=True)) / (feats.std(-1, keepdim=True) + 1e-5)


class Recogniser(nn.Module):
    def __init__(self, n_tokens=32):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(MELS, HIDDEN, 5, 2, 2),
            nn.GELU(),
            nn.Conv1d(HIDDEN, HIDDEN, 5, 2, 2),
            nn.GELU(),
        )
        self.rnn = nn.GRU(HIDDEN, HIDDEN, 3, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * HIDDEN, n_tokens)

    def forward(self, feats):
        x = self.front(feats).transpose(1, 2)
        x, _ = self.rnn(x)
        return self.head(x).log_softmax(-1)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    waves = (torch.randn(8 * BATCH, SECONDS * RATE) * 0.1).to(torch.float16)
    if DEVICE == "cuda":
        waves = waves.pin_memory()
    texts = torch.randint(1, 32, (8, BATCH, 5 * SECONDS))
    text_len = torch.full((BATCH,), 5 * SECONDS)
    texts = texts.to(DEVICE)
    features = LogMel()
    model = Recogniser().to(DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(int(os.environ.get("STEPS", 2000))):
        i = step % 8
        wave = waves[i * BATCH : (i + 1) * BATCH]
        x = features(wave.float()).to(DEVICE)
        out = model(x).transpose(0, 1)
        frames = torch.full((BATCH,), out.shape[0])
        loss = F.ctc_loss(out, texts[i], frames, text_len, zero_infinity=True)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print("step", step, "loss", loss.item())
    print("final", loss.item())


if __name__ == "__main__":
    main()
