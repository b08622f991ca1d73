"""MAML on frozen image features: five ways, five shots, second order."""

import os

import torch
import torch.nn.functional as F
from torch import func

TINY = bool(os.environ.get("TINY"))
FEATURES, WAYS, SHOTS, QUERIES = (16, 3, 2, 2) if TINY else (640, 5, 5, 15)
META_BATCH = 2 if TINY else 16
INNER_STEPS, INNER_LR = 3, 0.05
device = "cuda" if torch.cuda.is_available() else "cpu"


def init_params():
    sizes = [FEATURES, 256, 64, WAYS]
    params = {}
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        params[f"w{i}"] = torch.randn(a, b, device=device) * a**-0.5
        params[f"b{i}"] = torch.zeros(b, device=device)
    return {name: p.requires_grad_() for name, p in params.items()}


def logits(params, x):
    x = F.relu(x @ params["w0"] + params["b0"])
    x = F.relu(x @ params["w1"] + params["b1"])
    return x @ params["w2"] + params["b2"]


def support_loss(params, x, y):
    return F.cross_entropy(logits(params, x), y)


def task_loss(params, x_support, y_support, x_query, y_query):
    adapted = params
    for _ in range(INNER_STEPS):
        grads = func.grad(support_loss)(adapted, x_support, y_support)
        adapted = {k: p - INNER_LR * grads[k] for k, p in adapted.items()}
    return F.cross_entropy(logits(adapted, x_query), y_query)


def draw_tasks(generator):
    centers = torch.randn(META_BATCH, WAYS, 1, FEATURES, device=device, generator=generator)
    noise = torch.randn(
        META_BATCH, WAYS, SHOTS + QUERIES, FEATURES, device=device, generator=generator
    )
    x = centers + 2 * noise
    y = torch.arange(WAYS, device=device)[None, :, None].expand(META_BATCH, -1, SHOTS + QUERIES)
    return (
        x[:, :, :SHOTS].flatten(1, 2),
        y[:, :, :SHOTS].flatten(1, 2),
        x[:, :, SHOTS:].flatten(1, 2),
        y[:, :, SHOTS:].flatten(1, 2),
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    generator = torch.Generator(device).manual_seed(1)
    params = init_params()
    outer = torch.optim.Adam(params.values(), lr=1e-3, fused=device == "cuda")
    for iteration in range(int(os.environ.get("STEPS", 300))):
        tasks = draw_tasks(generator)
        losses = torch.stack([task_loss(params, *(t[i] for t in tasks)) for i in range(META_BATCH)])
        loss = losses.mean()
        outer.zero_grad()
        loss.backward()
        outer.step()
        if iteration % 25 == 0:
            print(f"iteration {iteration}: query loss {loss.item():.4f}")
    print("final", loss.item())
