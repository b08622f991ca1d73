"""What profiles say: pure functions over their columns."""
