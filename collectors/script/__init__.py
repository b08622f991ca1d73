"""Run a script in a fresh process, with settings applied, and measure its steps.

`runner` makes a run of a `request` and watches it; `events` reads what the process tells, `endings`
says why it ended, and `run_processes` ends what is left. `live` keeps one process and turns knobs
in it, `turns` has two work in turns, and `scratch` gives a run a private view of the file system.
In the process itself runs `child`.
"""

TARGET_MODULES = ("specification",)
