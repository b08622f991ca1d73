"""A deep model of tiny layers that the host cannot launch fast enough, cured by a CUDA graph."""

import torch

WANT = {"launch_bound"}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def steps(cured):
    layers = []
    for _ in range(80):
        layers += [torch.nn.Linear(128, 128), torch.nn.GELU(), torch.nn.LayerNorm(128)]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    x = torch.randn(32, 128, device=DEVICE)
    with torch.no_grad():
        function = model
        if cured and DEVICE == "cuda":
            function = torch.cuda.make_graphed_callables(model, (x,))
        while True:
            function(x)
            yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
