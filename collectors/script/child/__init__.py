"""What runs inside the process of the script: standard library, torch and appliers only.

`sitecustomize` and `start` begin it, `session` puts the harness together: `registry` applies knobs,
`patches` and `roots` stand in torch, `markers` and `clock` count steps, `channel` tells gpuadvisor.
`live_blocks` turns knobs between steps; `shortening` and `rehearsal` shorten a life and watch it.
"""

TARGET_MODULES = ("*",)
