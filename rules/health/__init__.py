"""Conditions of the machine: one file each, for findings of rules and events of the daemon.

A file has a `RULE` and a `check`, with a page beside it as in `catalogue`, or `EVENTS`: what makes
the objects that turn frames into events as they come (`rules.alert_states.Condition`). Most have
both, in one wording. A new file is a new condition. The daemon loads them all, so importing one
must not load numpy.
"""
