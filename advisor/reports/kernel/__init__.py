"""What tuning a kernel tells, how its best point is exported, and its occupancy."""
