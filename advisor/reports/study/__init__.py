"""What a study tells, and a verification of its plan: its verdict in words, sections and plots."""
