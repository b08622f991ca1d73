"""The most memory that a script has held: its own, not that of the process that started it."""

import subprocess
import sys

from gpuadvisor.collectors.script.child.patches import peak_memory

MIB = 1 << 20
READ = "from gpuadvisor.collectors.script.child.patches import peak_memory as p; held = {}\n"
TELL = "print(p(None)['peak_memory_bytes'])"


def held_by(script):
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return int(made.stdout)


def test_what_its_parent_held_is_not_its_own():
    ours = bytearray(b"x") * (256 * MIB)
    assert peak_memory(None)["peak_memory_bytes"] > len(ours)
    assert held_by(READ.format(None) + TELL) < len(ours)


def test_what_it_held_and_gave_back_is():
    assert held_by(READ.format("bytearray(b'x') * (256 << 20)") + "del held\n" + TELL) > 256 * MIB
