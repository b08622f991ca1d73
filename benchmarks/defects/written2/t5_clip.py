import os

import torch
from transformers import T5Config, T5ForConditionalGeneration

# summarization: T5-small from scratch
TINY = os.environ.get("TINY")
BATCH, SOURCE, TARGET = (2, 8, 4) if TINY else (32, 256, 64)
MAX_NORM = 1.0

config = T5Config(
    vocab_size=100 if TINY else 32128,
    d_model=32 if TINY else 512,
    d_kv=16 if TINY else 64,
    d_ff=64 if TINY else 2048,
    num_layers=2 if TINY else 6,
    num_heads=2 if TINY else 8,
    dropout_rate=0.0,
    decoder_start_token_id=0,
    use_cache=False,
)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def clip_gradients(parameters, max_norm):
    parameters = [p for p in parameters if p.grad is not None]
    total = 0.0
    for p in parameters:
        total += p.grad.norm(2).item() ** 2
    total = total**0.5
    scale = max_norm / (total + 1e-6)
    if scale < 1:
        for p in parameters:
            p.grad.mul_(scale)
    return total


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = T5ForConditionalGeneration(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    sources = torch.randint(2, config.vocab_size, (8, BATCH, SOURCE), device=device)
    targets = torch.randint(2, config.vocab_size, (8, BATCH, TARGET), device=device)
    model.train()
    for step in range(int(os.environ.get("STEPS", 250))):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(input_ids=sources[step % 8], labels=targets[step % 8]).loss
        optimizer.zero_grad()
        loss.backward()
        norm = clip_gradients(model.parameters(), MAX_NORM)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f} gradient norm {float(norm):.3f}")
    print("final", loss.item())


if __name__ == "__main__":
    main()
