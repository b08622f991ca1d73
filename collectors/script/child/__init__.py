"""What runs inside the process of the script: standard library, torch and appliers only."""

TARGET_MODULES = ("*",)
