"""The vocabulary every folder shares. It imports nothing else of gpuadvisor, and no dependency.

The target process imports parts of it, so its modules run on Python 3.10.
"""

TARGET_MODULES = ("*",)
