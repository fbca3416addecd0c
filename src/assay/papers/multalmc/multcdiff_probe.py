"""Why MultCDiff ends in one mode: its parts exchanged, one at a time, for what they approximate.

    python -m assay.papers.multalmc.multcdiff_probe

On a mixture of Gaussians E[Y | z] and the law of Y given z are known. With them in place of the
fast variable everything else (horizon, grid, friction, number of steps) is tested alone; what is
then still wrong with the fast variable in its place is the averaging.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.papers.multalmc.metrics import mode_weight_tv, self_distance
from assay.papers.multalmc.multcdiff import MultCDiff
from assay.papers.multalmc.sampler import State, TooManyDead
from assay.papers.multalmc.targets import GaussianMixture, eight_gaussians
from assay.toolkits.checks import one_of

VARIANCE = 0.7


@dataclass(frozen=True)
class Setting:
    """One run of the probe.

    Attributes:
        average: "exact", E[Y | z] itself; "draw", one exact draw of Y given z at each step;
            "fast", the sampler's own fast variable.
        target: "eight", the paper's 8-MoG; "rising", the same with weights 1 to 8 / 36; "two",
            two modes of weights .8 and .2 at +-`half_gap`.
        half_gap: of "two"; the barrier between the modes is about `half_gap^2 / 1.4`.
        start: of Y: "normal", as the sampler does; "target", exact draws of the target.
        n_steps, T, friction, eps, grid, start_scale, srock_stages, dynamics: of `MultCDiff`.
    """

    average: str = "fast"
    target: str = "eight"
    half_gap: float = 2.0
    start: str = "normal"
    n_steps: int = 1500
    T: float = 8.0
    friction: float = 2.0
    eps: float = 0.1
    grid: str = "stiffness"
    start_scale: float = 10.0
    srock_stages: int = 5
    dynamics: str = "underdamped"


_DRAWS = Setting(average="draw")
_TWO = Setting(target="two", start_scale=1.0)

SETTINGS: dict[str, Setting] = {
    "exact score": Setting(average="exact"),
    "exact Y": _DRAWS,
    "exact Y, unequal weights": replace(_DRAWS, target="rising"),
    "exact Y, overdamped": replace(_DRAWS, dynamics="overdamped"),
    "exact Y, 250 steps": replace(_DRAWS, n_steps=250),
    **{f"exact Y, T = {T:g}": replace(_DRAWS, T=T) for T in (2.0, 3.0, 5.0, 12.0)},
    "exact Y, friction .2, T = .8": replace(_DRAWS, friction=0.2, T=0.8),
    "exact score, the paper's grid": Setting(average="exact", grid="ou"),
    "exact score, the paper's grid, 16000 steps": Setting(
        average="exact", grid="ou", n_steps=16_000
    ),
    **{
        f"Y from N(0, {scale:g}^2 I), eps {eps:g}{'' if weights == 'eight' else ', unequal'}": (
            Setting(target=weights, start_scale=scale, eps=eps)
        )
        for scale in (1.0, 10.0, 30.0)
        for eps in (0.1, 0.01, 0.005)
        for weights in ("eight", "rising")
    },
    **{
        f"Y from N(0, 1^2 I), eps {eps:g}": Setting(start_scale=1.0, eps=eps)
        for eps in (0.002, 0.001, 0.0005)
    },
    "Y from the target": Setting(start="target"),
    "Y from the target, unequal": Setting(target="rising", start="target"),
    "eps .00125, 6000 steps": Setting(eps=0.00125, n_steps=6000),
    "eps .00125, 6000 steps, unequal": Setting(target="rising", eps=0.00125, n_steps=6000),
    **{
        f"two modes at +-{gap:g}, eps {eps:g}": replace(_TWO, half_gap=gap, eps=eps)
        for gap in (2.0, 2.5, 3.0, 4.0)
        for eps in (0.1, 0.01)
    },
    "two modes at +-3, eps .0025, 6000 steps": replace(
        _TWO, half_gap=3.0, eps=0.0025, n_steps=6000
    ),
    "two modes at +-4, exact Y": replace(_TWO, half_gap=4.0, average="draw"),
}


def target_of(setting: Setting) -> GaussianMixture:
    """The mixture that a setting names.

    Raises:
        ValueError: it names none.
    """
    one_of("target", setting.target, ("eight", "rising", "two"))
    if setting.target == "two":
        means = torch.tensor([[-1.0, 0.0], [1.0, 0.0]]) * setting.half_gap
        return GaussianMixture(means, VARIANCE, [0.8, 0.2])
    weights = torch.arange(1, 9) if setting.target == "rising" else None
    return GaussianMixture(eight_gaussians().means, VARIANCE, weights)


class _Probed(MultCDiff):
    """MultCDiff on a mixture of Gaussians, with the fast variable exchanged as a setting says."""

    def __init__(self, setting: Setting, generator: torch.Generator) -> None:
        options = asdict(setting)
        self.average = one_of("average", options.pop("average"), ("exact", "draw", "fast"))
        self.begin = one_of("start", options.pop("start"), ("normal", "target"))
        del options["target"], options["half_gap"]
        self.mixture = target_of(setting)
        super().__init__(self.mixture, generator=generator, **options)

    def _start(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> State:
        state = super()._start(n, generator, dtype)
        if self.begin == "target":
            state = replace(state, y=self.mixture.sample(n, generator, dtype))
        self.first = state.y
        return state

    def _fast(
        self, y: Tensor, centre: Tensor, noise: Tensor, rate: Any, tau: Any, spare: Tensor | None
    ) -> Tensor:
        if self.average == "fast":
            return super()._fast(y, centre, noise, rate, tau, spare)
        means, variances = self.mixture.means.to(y), self.mixture.variances.to(y)
        shares = self.mixture.mode_weights
        assert shares is not None
        # Of each component: the weight that the reading gives it, and Y within it.
        wide = variances + 1 / rate
        weights = shares.to(y).log() - 0.5 * self.dim * wide.log()
        weights = weights - 0.5 * torch.cdist(centre, means).square() / wide
        precisions = 1 / variances + rate
        within = ((means / variances[:, None]) + (rate * centre)[:, None]) / precisions[:, None]
        if self.average == "exact" and rate < self._rows[-1][-3]:
            return torch.einsum("nk,nkd->nd", weights.softmax(1), within)
        chosen = torch.multinomial(weights.softmax(1), 1, generator=self.generator)[:, 0]
        mean = within[torch.arange(len(y)), chosen]
        return mean + noise / precisions[chosen, None].sqrt()


def probe(setting: Setting, n: int = 500, seed: int = 0) -> dict[str, Any]:
    """Runs one setting.

    Args:
        setting: what is exchanged for what.
        n: chains, >= 1.
        seed: of the run.

    Returns:
        "tv", total variation between the weights of modes among the draws and the true ones;
        "floor", what n exact draws have of it; "kept", the share of chains that end in the mode in
        whose region their Y started, NaN where Y is exact and its start unused; "in_mode", the
        share within three standard deviations of a mode; "variance" around the nearest mode,
        whose true value is .7; "weights", a list; "stiffness" and "seconds". A run that is
        refused, as its chains left the target, has NaN in place of what its draws would tell.
    """
    generator = torch.Generator().manual_seed(seed)
    sampler = _Probed(setting, generator)
    target = sampler.mixture
    begun = time.perf_counter()
    metrics: dict[str, Any] = {
        "floor": self_distance(mode_weight_tv, target, n, seed),
        "stiffness": sampler.stiffness,
    }
    try:
        samples = sampler.sample(n, dtype=torch.float64).samples
    except TooManyDead:
        nothing = dict.fromkeys(("tv", "kept", "in_mode", "variance"), math.nan)
        return {**metrics, **nothing, "weights": [], "seconds": time.perf_counter() - begun}
    samples = samples[samples.isfinite().all(1)]
    gaps, nearest = torch.cdist(samples, target.means).min(1)
    first = sampler.first
    assert first is not None
    kept = math.nan
    if setting.average == "fast":
        kept = float((target.assign(first) == nearest).double().mean())
    return {
        **metrics,
        "tv": mode_weight_tv(samples, target),
        "kept": kept,
        "in_mode": float((gaps < 3 * math.sqrt(VARIANCE)).double().mean()),
        "variance": float(gaps.square().mean() / target.dim),
        "weights": target.mode_probabilities(samples).mean(0).tolist(),
        "seconds": time.perf_counter() - begun,
    }


def main() -> None:
    """Prints the table of all settings."""
    columns = ("tv", "floor", "kept", "in_mode", "variance", "stiffness", "seconds")
    print(f"{'setting':<44}" + "".join(f"{name:>10}" for name in columns) + "  weights")
    for name, setting in SETTINGS.items():
        found = probe(setting)
        cells = "".join(f"{found[column]:>10.3g}" for column in columns)
        print(f"{name:<44}{cells}  " + " ".join(f"{w:.3f}" for w in found["weights"]), flush=True)


if __name__ == "__main__":
    main()
