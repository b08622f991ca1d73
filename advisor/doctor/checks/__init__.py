"""What is checked, in rooms: `CHECKS` of each names its checks by their place in the list."""
