"""Has a process look for garbage seldom, of which imports make none, and not when it ends.

That is a quarter of the CPU time of a script that imports torch and does little with it.
"""

import atexit
import gc

gc.set_threshold(100_000, 50, 100)
atexit.register(gc.freeze)
