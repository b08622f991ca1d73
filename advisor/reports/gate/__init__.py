"""What a gate has to say."""
