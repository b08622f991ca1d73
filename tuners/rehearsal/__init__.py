"""What shortened lives of a script prove of a plan: its data, its results, its times, its end."""
