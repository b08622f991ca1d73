"""What runs in the user's Python, with torch and the library of the kernel's language."""

TARGET_MODULES = ("*",)
