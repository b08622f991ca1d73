"""Ends the script's own loops early, and watches branches that a shortened life may not reach.

`loop_imports` has `loop_rewriting` change the script's files as they are loaded, so that their
loops ask `loops` whether to go on, and `branch_marking` mark branches, of which `branches` hears.
`progress` is what hooks have counted so far. `branch_names` reads a file's text, with one file
beside it for each kind of things that it knows: `branch_clock`, `branch_errors` ...
"""

TARGET_MODULES = ("*",)
