"""How far a rate that was counted may be from the true one."""


def interval(count: int, of: int, outside: float = 0.05) -> tuple[float, float]:
    """Return the ends of the interval of a rate (Clopper-Pearson).

    The true rate lies above it with a chance of half of `outside` at most, and below it likewise.
    """
    from scipy.special import betaincinv

    low = float(betaincinv(count, of - count + 1, outside / 2)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - outside / 2)) if count < of else 1.0
    return low, high


def at_most(count: int, of: int) -> float:
    """Return the upper end of the one-sided 95 % interval of a rate."""
    return interval(count, of, 0.1)[1]
