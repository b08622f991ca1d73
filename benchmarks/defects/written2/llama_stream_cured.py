"""A small text generation service: requests come in batches, tokens are decoded greedily."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = bool(os.environ.get("TINY"))
LAYERS, DIM, HEADS, HIDDEN, VOCAB = (2, 32, 2, 64, 60) if TINY else (10, 4096, 32, 11008, 32000)
BATCH, NEW_TOKENS = (2, 4) if TINY else (16, 128)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)
        self.gate_up = nn.Linear(DIM, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, DIM, bias=False)
        cache = torch.zeros(2, BATCH, HEADS, NEW_TOKENS, DIM // HEADS, dtype=torch.bfloat16)
        self.register_buffer("cache", cache, persistent=False)

    def forward(self, x, position):
        q, k, v = self.qkv(self.norm1(x)).view(BATCH, 3, HEADS, 1, -1).unbind(1)
        self.cache[0, :, :, position] = k[:, :, 0]
        self.cache[1, :, :, position] = v[:, :, 0]
        keys, values = self.cache[:, :, :, : position + 1]
        y = F.scaled_dot_product_attention(q.to(keys.dtype), keys, values)
        x = x + self.out(y.reshape(BATCH, DIM))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.positions = nn.Embedding(NEW_TOKENS, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, token, position):
        x = self.embed(token) + self.positions.weight[position]
        for layer in self.layers:
            x = layer(x, position)
        return self.head(self.norm(x))


@torch.no_grad()
def generate(model, token):
    tokens = [token]
    with torch.autocast(device.type, torch.bfloat16):
        for position in range(NEW_TOKENS):
            token = model(token, position).argmax(-1)
            tokens.append(token)
    return torch.stack(tokens, 1)


def serve(model, requests):
    for number, prompt in enumerate(requests):
        answer = generate(model, prompt.to(device)).cpu()
        print(number, answer.float().mean().item(), flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.device(device):
        llama = Llama().eval()
    prompts = torch.randint(VOCAB, (int(os.environ.get("STEPS", 16)), BATCH))
    serve(llama, prompts)
