"""A package that is started with `python -m shop.train`."""
