"""Is this machine fit for tuning? One check is one small file in `checks/`."""
