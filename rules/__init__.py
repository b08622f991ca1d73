"""Rules: pure functions from the evidence of a run to what is wrong with it and what that costs."""
