"""How a study runs a script: fresh or forked, alone or in turns, and what a run amounts to."""
