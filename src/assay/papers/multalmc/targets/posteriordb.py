"""Posteriors of a checkout of posteriordb, evaluated by Stan."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Draws = dict[str, Tensor]


class StanPosterior:
    """The posterior of a Stan model, on the unconstrained space that Stan itself samples on.

    Points are evaluated one after another on the CPU, whatever their device. Where Stan refuses a
    point, its log-density is -inf and its score NaN.

    Args:
        model: a `bridgestan.StanModel`, with its data.
        read_draws: reads the reference draws, chains of ``{parameter: values}``; None where there
            are none.

    Attributes:
        dim: d, the number of unconstrained parameters.
    """

    def __init__(
        self, model: Any, read_draws: Callable[[], list[dict[str, list[float]]]] | None = None
    ) -> None:
        self._model, self._read_draws = model, read_draws
        self.dim: int = model.param_unc_num()

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density with the Jacobian of Stan's transforms, up to a constant, ``(N,)``.

        Args:
            x: Unconstrained parameters, ``(N, d)``.
        """
        return self._each(lambda row: self._model.log_density(row, propto=False), x, -np.inf, ())

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, d)``.

        Args:
            x: Unconstrained parameters, ``(N, d)``.
        """
        gradient = self._model.log_density_gradient
        return self._each(lambda row: gradient(row)[1], x, np.nan, (self.dim,))

    def constrain(self, x: Tensor) -> Draws:
        """The model's parameters and transformed parameters, to compare with `reference_draws`.

        Args:
            x: Unconstrained parameters, ``(N, d)``.

        Returns:
            By name, "mu" or "theta[1,2]" counted from 1, values ``(N,)``; NaN where Stan refuses.
        """
        names = self._model.param_names(include_tp=True)
        values = self._each(
            lambda row: self._model.param_constrain(row, include_tp=True), x, np.nan, (len(names),)
        )
        return {_with_brackets(name): values[:, i] for i, name in enumerate(names)}

    @cached_property
    def reference_draws(self) -> Draws | None:
        """Reference draws of all chains in turn, by name as of `constrain`, ``(N,)``, float64.

        None where there are none. They need not have every parameter that `constrain` gives.
        """
        if self._read_draws is None:
            return None
        chains = self._read_draws()
        return {
            name: torch.tensor([v for chain in chains for v in chain[name]], dtype=torch.float64)
            for name in chains[0]
        }

    def _each(
        self,
        function: Callable[[np.ndarray], Any],
        x: Tensor,
        refused: float,
        shape: tuple[int, ...],
    ) -> Tensor:
        rows = x.detach().double().cpu().contiguous().numpy()
        values = np.full((len(rows), *shape), refused)
        for i, row in enumerate(rows):
            try:
                values[i] = function(row)
            except RuntimeError:  # Stan's way to reject a point
                continue
        return torch.from_numpy(values).to(x)


def posteriordb_target(path: str | os.PathLike[str], name: str) -> StanPosterior:
    """A posterior of a checkout of https://github.com/stan-dev/posteriordb.

    Through the packages posteriordb and bridgestan. The latter compiles the Stan model when it is
    first loaded, next to its code in the checkout; it needs make and a C++ compiler, and downloads
    BridgeStan's sources once where the environment variable BRIDGESTAN names no copy of them.

    Not tried is that compilation: with both packages, eight schools was loaded from a checkout, its
    compiled model written by hand in C. Samplers of blackjax cannot use such targets.

    Args:
        path: The checkout, or its folder posterior_database.
        name: Of the posterior, for instance "eight_schools-eight_schools_noncentered".

    Returns:
        A target with ``constrain(x)`` and ``reference_draws``.

    Raises:
        ValueError: `path` is no checkout, or it has no such posterior.
        ModuleNotFoundError: A package is not installed.
        RuntimeError: The model does not compile or refuses its data.
    """
    root = Path(path)
    if (root / "posterior_database").is_dir():
        root = root / "posterior_database"
    names = [file.stem for file in (root / "posteriors").glob("*.json")]
    if not names:
        raise ValueError(f"path: got {str(path)!r}, wants a checkout of posteriordb")
    if name not in names:
        near = difflib.get_close_matches(str(name), names, 3, 0) or names
        raise ValueError(f"name: got {name!r}, wants a posterior of {root}, such as {near}")
    try:
        from bridgestan import StanModel
        from posteriordb import PosteriorDatabase
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name}: not installed; pip install 'assay[multalmc-posteriordb]'",
            name=error.name,
        ) from error

    posterior = PosteriorDatabase(str(root)).posterior(name)
    model = StanModel(posterior.model.code_file_path("stan"), json.dumps(posterior.data.values()))
    has_draws = posterior.posterior_info.get("reference_posterior_name") is not None
    return StanPosterior(model, posterior.reference_draws if has_draws else None)


def _with_brackets(name: str) -> str:
    head, *indices = name.split(".")
    return f"{head}[{','.join(indices)}]" if indices else head
