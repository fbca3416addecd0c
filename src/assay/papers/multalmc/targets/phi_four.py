"""The phi^4 field on a line, whose mode weights and marginals are exact by transfer matrix."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from assay.papers.multalmc.targets.base import AnalyticTarget, rand
from assay.toolkits.checks import number, whole


class PhiFour(AnalyticTarget):
    """A field at d sites between two that are held at 0, with energy ``beta U``:

    ``U = a d sum_{i=0..d} (phi_{i+1} - phi_i)^2 / 2
    + sum_{i=1..d} [(1 - phi_i^2)^2 / 4 + h phi_i] / (a d)``

    The two modes are a field mostly below and one mostly above 0; a field belongs to the one that
    its middle site (number ``d // 2``, counted from 0) says. The sites are a Markov chain, so that
    sums over all fields are products of matrices on a grid.

    Args:
        dim: Number of sites d, >= 1.
        h: External field; at 0 both modes weigh the same, above 0 the lower one weighs more.
        a: Strength of the coupling between sites, > 0.
        beta: Inverse temperature, > 0.
        grid_points: Of the grid, on ``[-3, 3]``, >= 50. It must resolve ``1 / sqrt(beta a d)``.

    Raises:
        TypeError, ValueError: An argument outside its range, or a grid too coarse for the coupling.
    """

    def __init__(
        self,
        dim: int = 100,
        h: float = 0.0,
        *,
        a: float = 0.1,
        beta: float = 20.0,
        grid_points: int = 400,
    ) -> None:
        super().__init__(dim)
        self.h, self.a = number("h", h), number("a", a, above=0)
        self.beta = number("beta", beta, above=0)
        self.grid = np.linspace(-3, 3, whole("grid_points", grid_points, 50))
        self._coupling = self.beta * self.a * dim
        spacing, width = self.grid[1] - self.grid[0], self._coupling**-0.5
        if spacing > width:
            least = int(6 / width) + 2
            raise ValueError(f"grid_points: got {grid_points}, wants >= {least} for this coupling")

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density up to a constant, ``(N,)``.

        Args:
            x: Fields, ``(N, d)``.
        """
        padded = torch.nn.functional.pad(x, (1, 1))
        bonds = 0.5 * self._coupling * padded.diff(dim=1).square().sum(1)
        sites = ((1 - x**2) ** 2 / 4 + self.h * x).sum(1)
        return -bonds - self.beta / (self.a * self.dim) * sites

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log-density, ``(N, d)``.

        Args:
            x: Fields, ``(N, d)``.
        """
        bonds = torch.nn.functional.pad(x, (1, 1)).diff(dim=1).diff(dim=1)
        sites = x * (x**2 - 1) + self.h
        return self._coupling * bonds - self.beta / (self.a * self.dim) * sites

    def assign(self, x: Tensor) -> Tensor:
        """0 where the middle site is below 0, 1 where it is above, ``(N,)``.

        Args:
            x: Fields, ``(N, d)``.
        """
        return (x[:, self.dim // 2] > 0).long()

    @cached_property
    def _transfer(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Bond matrix ``(G, G)``, messages from left and right ``(d, G)``, and log Z."""
        grid, spacing = self.grid, self.grid[1] - self.grid[0]
        energy = (1 - grid**2) ** 2 / 4 + self.h * grid
        site = np.exp(-self.beta / (self.a * self.dim) * energy) * spacing
        bond = np.exp(-0.5 * self._coupling * (grid[:, None] - grid) ** 2)
        edge = np.exp(-0.5 * self._coupling * grid**2)
        left, right = np.empty((2, self.dim, len(grid)))
        left[0], right[-1] = edge * site, edge
        log_z = 0.0
        for i in range(1, self.dim):
            total = left[i - 1].sum()
            log_z += np.log(total)
            left[i] = bond @ (left[i - 1] / total) * site
            message = bond @ (right[-i] * site)
            right[-i - 1] = message / message.sum()
        log_z += np.log(left[-1] @ edge)
        return bond, left, right, float(log_z)

    @property
    def log_normaliser(self) -> float:
        """Log of the integral of ``exp(log_prob)`` over all fields."""
        return self._transfer[3]

    def site_density(self, site: int) -> tuple[np.ndarray, np.ndarray]:
        """The grid ``(G,)`` and the marginal density of one site on it, ``(G,)``.

        Args:
            site: 0 to d - 1.

        Raises:
            TypeError, ValueError: There is no such site.
        """
        if whole("site", site, 0) >= self.dim:
            raise ValueError(f"site: got {site}, wants 0 to {self.dim - 1}")
        _, left, right, _ = self._transfer
        mass = left[site] * right[site]
        return self.grid, mass / (mass.sum() * (self.grid[1] - self.grid[0]))

    @cached_property
    def mode_weights(self) -> Tensor:  # type: ignore[override]
        """Probability that the middle site is below and above 0, ``(2,)``, float64."""
        grid, density = self.site_density(self.dim // 2)
        share = np.where(grid == 0, 0.5, grid < 0)
        # A grid with no point at 0 has cells that end there: sums are then midpoint sums.
        below = float((density * share).sum() / density.sum())
        return torch.tensor([below, 1 - below], dtype=torch.float64)

    @cached_property
    def modes(self) -> Tensor:  # type: ignore[override]
        """The two fields of least energy, ``(2, d)``, float64."""
        from scipy.optimize import minimize

        def energy(field: np.ndarray) -> tuple[float, np.ndarray]:
            x = torch.from_numpy(field)[None]
            return -float(self.log_prob(x)), -self.score(x)[0].numpy()

        starts = -np.ones(self.dim), np.ones(self.dim)
        found = [minimize(energy, start, jac=True, method="L-BFGS-B").x for start in starts]
        return torch.from_numpy(np.stack(found))

    def sample(
        self, n: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Draws ``(n, d)``, exact up to the grid, site by site from the right.

        Args:
            n: How many, >= 1.
            generator: Source; None is torch's own.
            dtype: Default: torch's default.
        """
        uniform = rand(2 * n * self.dim, generator, torch.float64).cpu().numpy()
        choice, jitter = uniform.reshape(2, self.dim, n)
        bond, left, _, _ = self._transfer
        field = np.empty((n, self.dim), dtype=int)
        weight = np.exp(-0.5 * self._coupling * self.grid**2)[None]
        for i in reversed(range(self.dim)):
            cdf = np.cumsum(left[i] * weight, 1)
            cdf = np.broadcast_to(cdf, (n, len(self.grid)))
            field[:, i] = (cdf < choice[i][:, None] * cdf[:, -1:]).sum(1)
            weight = bond[field[:, i]]
        x = self.grid[field] + (jitter.T - 0.5) * (self.grid[1] - self.grid[0])
        device = "cpu" if generator is None else generator.device
        return torch.from_numpy(x).to(device, dtype or torch.get_default_dtype())
