"""What a rehearsal watches inside the script's processes: its batches and its data sets' state."""

TARGET_MODULES = ("*",)
