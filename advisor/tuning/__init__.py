"""Tuning a script: the wiring of collectors, tuners and storage into one study.

`study` has the phases, and `plans` what becomes of its outcome; `evaluator` and `trial_runner`
measure settings, `proving` proves and rehearses them, `budget` says what there is time for. `gate`
compares versions and `kernels` tunes a file of kernels by the same means.
"""
