"""Is this machine fit for tuning? `checks/` has what is looked at."""
