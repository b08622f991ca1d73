"""A gate: how two versions are compared, what is compared of them, and when it is decided."""
