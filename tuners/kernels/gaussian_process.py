"""A Gaussian process: from some evaluated points to a mean and a deviation for all others.

Matérn 5/2 with a length for each feature; lengths, amplitude and noise are those that make the
evaluated points most probable, under priors that hold for any space (Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, chapters 2, 4.2 and 5.4).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from gpuadvisor.tuners.kernels.points import Floats

_ROOT5 = math.sqrt(5)
_JITTER = 1e-6
"""Added to the diagonal, so that two points that look alike can be told apart by rounding."""
_LENGTH = 0.5
"""Length at the middle of its prior for one feature from 0 to 1; it grows with the root of their
number, as distances do (Hvarfner et al., Vanilla Bayesian Optimization, 2024)."""
_NOISE = 0.03
"""Noise at the middle of its prior, in standard deviations of what was evaluated."""
_ROUNDS_FIRST, _ROUNDS = 30, 12
"""Steps of the optimizer: from scratch, and from the last lengths."""


class GaussianProcess:
    """A model of values over features; `fit` finds its lengths, `predict` uses them."""

    def __init__(self, features: int) -> None:
        self._features = features
        self._theta = np.array([math.log(0.5)] * features + [0.0, math.log(1e-2)])
        """Logarithms of the lengths, of the amplitude, and of the noise."""
        self._middle = np.array(
            [math.log(_LENGTH) + 0.5 * math.log(max(features, 1))] * features
            + [0.0, math.log(_NOISE)]
        )
        self._rounds = _ROUNDS_FIRST

    def fit(self, points: Floats, values: Floats) -> None:
        """Find lengths, amplitude and noise, from those that it has."""
        squares = (points[:, None, :] - points[None, :, :]) ** 2
        bounds = [(-4.0, 4.0)] * self._features + [(-3.0, 3.0), (-6.0, 0.0)]
        found = minimize(
            self._improbability,
            self._theta,
            (squares, values),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": self._rounds},
        )
        self._theta, self._rounds = found.x, _ROUNDS

    def predict(self, points: Floats, values: Floats, at: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation `at` other points, given values at some."""
        scale = np.exp(-self._theta[: self._features])
        amplitude, noise = np.exp(2 * self._theta[self._features :])
        near, far = points * scale, at * scale
        covariance = amplitude * _matern(_distances(near, near))
        covariance.flat[:: len(points) + 1] += noise + _JITTER
        lower = np.linalg.cholesky(covariance)
        between = amplitude * _matern(_distances(near, far))
        mean = between.T @ cho_solve((lower, True), values)
        half = solve_triangular(lower, between, lower=True, check_finite=False)
        variance = np.maximum(amplitude - np.einsum("ij,ij->j", half, half), 1e-12)
        return mean, np.sqrt(variance)

    def _improbability(
        self, theta: Floats, squares: Floats, values: Floats
    ) -> tuple[float, Floats]:
        """Return the negative logarithm of the posterior of the lengths, and its gradient."""
        features = self._features
        weights = np.exp(-2 * theta[:features])
        amplitude, noise = np.exp(2 * theta[features:])
        distances = np.sqrt(squares @ weights)
        decay = amplitude * np.exp(-_ROOT5 * distances)
        kernel = (1 + _ROOT5 * distances + 5 / 3 * distances**2) * decay
        identity = np.eye(len(values))
        factor = cho_factor(kernel + (noise + _JITTER) * identity, lower=True)
        solved = cho_solve(factor, values)
        left = np.outer(solved, solved) - cho_solve(factor, identity)
        slope = left * (5 / 3) * (1 + _ROOT5 * distances) * decay
        gradient = np.empty_like(theta)
        gradient[:features] = -0.5 * np.einsum("ij,ijk->k", slope, squares) * weights
        gradient[features] = -np.sum(left * kernel)
        gradient[features + 1] = -np.trace(left) * noise
        away = theta - self._middle
        fit = 0.5 * values @ solved + np.log(np.diag(factor[0])).sum()
        return float(fit + 0.5 * away @ away), gradient + away


def _distances(one: Floats, other: Floats) -> Floats:
    squares = (one * one).sum(1)[:, None] + (other * other).sum(1)[None] - 2 * one @ other.T
    found: Floats = np.sqrt(np.maximum(squares, 0))
    return found


def _matern(distances: Floats) -> Floats:
    found: Floats = (1 + _ROOT5 * distances + 5 / 3 * distances**2) * np.exp(-_ROOT5 * distances)
    return found
