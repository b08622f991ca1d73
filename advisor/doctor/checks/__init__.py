"""One check a file: `ORDER`, and `check(machine)`, which returns none or more `Check`s."""
