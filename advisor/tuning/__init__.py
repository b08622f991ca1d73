"""Tuning a script: the wiring of collectors, tuners and storage into one study.

`study` has the phases, `proving` and `rehearsal` what a gain is held against. `trials` runs
scripts, `live` asks a running one, `budgeting` says what there is time for, `outcome` what is said
and kept, and `plans` keeps what was proven. Beside a study `verifying` looks whether a plan still
holds, `gate` compares versions, and `kernels` tunes a file of kernels, by the same means.
"""
