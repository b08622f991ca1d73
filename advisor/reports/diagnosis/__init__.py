"""What a diagnosis tells: findings, the account of the time, and what could not be looked at."""
