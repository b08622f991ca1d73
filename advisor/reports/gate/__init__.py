"""What a gate tells: its outcome, why the head is slower, its history, and files for CI."""
