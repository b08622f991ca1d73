"""The rules, one file each, with a page of the same name beside it."""
