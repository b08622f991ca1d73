"""What is asked of one running script: what its knobs bring, and how fast its loader is alone."""
