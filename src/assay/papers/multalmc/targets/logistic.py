"""Posteriors of Bayesian logistic regression on real data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.papers.multalmc.targets.base import AnalyticTarget
from assay.toolkits.checks import number
from assay.toolkits.data import find_data


class LogisticRegression(AnalyticTarget):
    """Posterior of ``y ~ Bernoulli(sigmoid(b + X w))`` with ``(w, b) ~ N(0, prior_scale^2 I)``.

    Args:
        X: Features, ``(n, p)``; standardise them, as the prior is on their scale.
        y: Labels 0 or 1, ``(n,)``.
        X_test, y_test: Held-out features and labels, for `predictive_log_likelihood`.
        prior_scale: Standard deviation of the prior, > 0.

    Attributes:
        dim: p + 1; the last coordinate is the bias b.

    Raises:
        ValueError: Shapes that disagree, values that are not finite, labels other than 0 and 1.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        X_test: Any = None,
        y_test: Any = None,
        *,
        prior_scale: float = 1.0,
    ) -> None:
        self.design, self.labels = _with_bias("X", X, "y", y)
        super().__init__(self.design.shape[1])
        self.prior_scale = number("prior_scale", prior_scale, above=0)
        self.test_design: Tensor | None = None
        if X_test is not None:
            self.test_design, self.test_labels = _with_bias("X_test", X_test, "y_test", y_test)
            if self.test_design.shape[1] != self.dim:
                width = self.test_design.shape[1] - 1
                raise ValueError(f"X_test: got {width} features, wants {self.dim - 1}")

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-likelihood plus log-prior up to a constant, ``(N,)``.

        Args:
            x: Coefficients, the bias last, ``(N, d)``.
        """
        logits = x @ self._like("design", x).T
        likelihood = (logits * self._like("labels", x)).sum(1)
        likelihood = likelihood - torch.nn.functional.softplus(logits).sum(1)
        return likelihood - 0.5 * (x / self.prior_scale).square().sum(1)

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, d)``.

        Args:
            x: Coefficients, the bias last, ``(N, d)``.
        """
        design = self._like("design", x)
        residuals = self._like("labels", x) - (x @ design.T).sigmoid()
        return torch.addmm(x, residuals, design, beta=-1 / self.prior_scale**2)

    def predictive_log_likelihood(self, samples: Tensor) -> float:
        """Sum over held-out points of the log of the probability averaged over the samples.

        Args:
            samples: Draws from the posterior, ``(N, d)``.

        Raises:
            ValueError: The target was made without held-out data.
        """
        if self.test_design is None:
            raise ValueError("X_test: got None, wants held-out data for a predictive likelihood")
        samples = samples.double().cpu()
        signs = 2 * self.test_labels - 1
        log_probs = torch.nn.functional.logsigmoid(samples @ self.test_design.T * signs)
        return float((log_probs.logsumexp(0) - np.log(len(samples))).sum())


def _with_bias(name: str, X: Any, labels_name: str, y: Any) -> tuple[Tensor, Tensor]:
    X = torch.as_tensor(np.asarray(X), dtype=torch.float64)
    y = torch.as_tensor(np.asarray(y), dtype=torch.float64)
    if X.ndim != 2 or not X.isfinite().all():
        raise ValueError(f"{name}: got shape {tuple(X.shape)}, wants finite numbers (n, p)")
    if y.shape != X.shape[:1] or not ((y == 0) | (y == 1)).all():
        raise ValueError(f"{labels_name}: got shape {tuple(y.shape)}, wants {len(X)} of 0 and 1")
    return torch.cat([X, torch.ones(len(X), 1, dtype=torch.float64)], 1), y


def ionosphere(*, seed: int = 0, prior_scale: float = 1.0) -> LogisticRegression:
    """Ionosphere of the UCI repository, 351 points and 34 features, from ``DATA/multalmc``.

    Args:
        seed: Of the split, four parts for training and one held out, with equal shares of labels.
        prior_scale: As in `LogisticRegression`.

    Raises:
        MissingData: The file is nowhere to be found.
    """
    return _split(*_read("ionosphere.csv", "g"), seed, prior_scale)


def sonar(*, seed: int = 0, prior_scale: float = 1.0) -> LogisticRegression:
    """Sonar of the UCI repository, 208 points and 60 features, from ``DATA/multalmc``.

    Args:
        seed: Of the split, four parts for training and one held out, with equal shares of labels.
        prior_scale: As in `LogisticRegression`.

    Raises:
        MissingData: The file is nowhere to be found.
    """
    return _split(*_read("sonar.csv", "M"), seed, prior_scale)


def breast_cancer(*, seed: int = 0, prior_scale: float = 1.0) -> LogisticRegression:
    """Breast cancer Wisconsin, as scikit-learn ships it: 569 points and 30 features.

    Args:
        seed: Of the split, four parts for training and one held out, with equal shares of labels.
        prior_scale: As in `LogisticRegression`.
    """
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return _split(X, y, seed, prior_scale)


def wine(*, seed: int = 0, prior_scale: float = 1.0) -> LogisticRegression:
    """Wine, as scikit-learn ships it: 178 points and 13 features, the second of three against rest.

    Args:
        seed: Of the split, four parts for training and one held out, with equal shares of labels.
        prior_scale: As in `LogisticRegression`.
    """
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    return _split(X, y == 1, seed, prior_scale)


def digits(*, seed: int = 0, prior_scale: float = 1.0) -> LogisticRegression:
    """Digits, as scikit-learn ships them: 1797 pictures of 64 pixels, even against odd.

    Args:
        seed: Of the split, four parts for training and one held out, with equal shares of labels.
        prior_scale: As in `LogisticRegression`.
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return _split(X, y % 2 == 0, seed, prior_scale)


def _read(name: str, positive: str) -> tuple[np.ndarray, np.ndarray]:
    rows = np.loadtxt(find_data("multalmc", name), delimiter=",", dtype=str)
    return rows[:, :-1].astype(float), rows[:, -1] == positive


def _split(X: np.ndarray, y: np.ndarray, seed: int, prior_scale: float) -> LogisticRegression:
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    train, test, y_train, y_test = train_test_split(
        X, np.asarray(y, dtype=float), test_size=0.2, stratify=y, random_state=seed
    )
    scaler = StandardScaler().fit(train)  # a column that is constant becomes 0
    return LogisticRegression(
        scaler.transform(train),
        y_train,
        scaler.transform(test),
        y_test,
        prior_scale=prior_scale,
    )
