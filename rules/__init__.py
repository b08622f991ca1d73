"""Rules: pure functions from the evidence of a run to what is wrong with it and what that costs.

`catalogue` and `health` have a file for each rule, `facts` what they derive from a profile, `jobs`
what a job wastes by telemetry alone. `engine` asks all rules and ranks what they find, `estimates`
is how they say what a cure saves, `paces` how fast the host is meanwhile; the other files are what
several rules share.
"""
