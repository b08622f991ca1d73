"""Live screening: which knobs, and which of them together, are worth starting processes for.

Knobs are turned between the steps of one running script, so a comparison costs seconds and its
noise is that of neighbouring blocks of steps: a tenth of that of fresh processes. `course` decides
what is compared with what, `blocks` is how that is asked of the script, `knowledge` what the
answers say of each value. Nothing here is a gain to be told: what looks best is proven in fresh
processes.
"""
