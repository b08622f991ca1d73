"""What a script's loader supplies alone, and what that leaves for all else to bring."""
