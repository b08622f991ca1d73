"""The numpy columns of a profile, shared by the store and the facts; below both."""
