"""The daemon's endpoint over HTTP, and who asks it from another machine.

`exporter` serves it: `exposition` to Prometheus, `answer` (now) and `past_answer` to `gpuadvisor
watch --host`, whose side is `client`, `remote` (now) and `remote_past`.
"""
