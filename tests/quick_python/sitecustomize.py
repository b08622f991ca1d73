"""Prepares the process before the first line of its program."""

import quick_python  # noqa: F401 - to be imported is all that it is for
