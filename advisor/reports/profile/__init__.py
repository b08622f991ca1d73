"""What a profile tells: where its time and memory go, of one, of ranks, and of two compared."""
