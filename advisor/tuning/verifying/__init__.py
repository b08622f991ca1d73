"""Verification of a plan.

`options` names the plan, `verification` measures whether its gain is still there and its results
are the same, and `judgement` says what that amounts to.
"""
