import sys

import torch
import toy

how = sys.argv[1]
model = toy.model().eval()
encoder = toy.model()
if how != "function":
    encoder(torch.randn(1, 8))  # once, for preparation
if how == "compiled":
    model.compile(backend="eager")
elif how == "scripted":
    model = torch.jit.script(model)
call = model
if how == "function":

    @torch.compile(backend="eager")
    def call(x):
        return torch.nn.functional.linear(x, weight).relu()

    weight = torch.randn(2, 8)
clock = toy.Clock()
with torch.inference_mode() if how == "inference_mode" else torch.no_grad():
    for _ in range(160):
        call(torch.randn(32, 8))
        clock.step()
clock.report()
