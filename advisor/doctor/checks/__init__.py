"""One check a file: `ORDER`, and `check(facts)`, which returns none or more `Check`s."""
