"""What a GPU really reaches: bytes and operations a second, measured in the user's own torch."""
