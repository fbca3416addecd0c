"""What an update costs, against independent Q-learning in the same run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.papers.rac.batch import EpisodeBatch
from assay.papers.rac.context import ReturnContext
from assay.papers.rac.learners import Core
from assay.papers.rac.methods import IQL, RAC, Method
from assay.papers.rac.network import RACNet
from assay.papers.rac.reference import contextual_by_passes
from assay.toolkits.checks import whole
from assay.toolkits.timing import interleave


class _PassNet(RACNet):
    """A `RACNet` that runs its trunk once for each context."""

    def contextual(self, obs: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return contextual_by_passes(self, obs, h), None


class _ByPasses(RAC):
    def network(self, obs_dim: int, n_actions: int, hidden: int, recurrent: bool) -> RACNet:
        assert self.context is not None
        return _PassNet(obs_dim, n_actions, self.context.bins, hidden, recurrent, self.context_head)


def update_cost(
    ms: Sequence[int] = (4, 10, 16, 32, 64),
    *,
    passes: Sequence[int] = (),
    obs_dim: int = 80,
    n_actions: int = 9,
    hidden: int = 64,
    steps: int = 50,
    episodes: int = 32,
    recurrent: bool = True,
    context_head: str = "hyper",
    repeats: int = 10,
    seed: int = 0,
) -> dict[str, float]:
    """Times an update of one agent: losses, gradients, clipping and optimiser step.

    All arms take turns on the same episodes. Defaults are about those of a small StarCraft map.

    Args:
        ms: Numbers of contexts m of return-aware context.
        passes: Numbers of contexts for which to time the definition as well, in which the trunk
            runs once for each context.
        obs_dim: Length of an input vector.
        n_actions: Number of actions.
        hidden: Width of the networks.
        steps: Length of every episode.
        episodes: How many in an update.
        recurrent: Whether networks have a memory.
        context_head: "hyper" or "concat".
        repeats: How often each arm is timed.
        seed: Of weights and episodes.

    Returns:
        Median seconds "iql_s", "rac_<m>_s" and "passes_<m>_s"; the ratios to independent
        Q-learning "rac_<m>_ratio" and "passes_<m>_ratio"; and "spread", "foreign" and "rounds" as
        `interleave` has them. Times are NaN where the machine was busy with other things.

    Raises:
        TypeError, ValueError: A size that is no positive integer.
    """
    for name, size in (("steps", steps), ("episodes", episodes), ("repeats", repeats)):
        whole(name, size)
    batch = _episodes(episodes, steps, whole("obs_dim", obs_dim), n_actions, seed)
    methods: dict[str, Method] = {"iql": IQL()}
    for name, kind, numbers in (("rac", RAC, ms), ("passes", _ByPasses, passes)):
        for m in numbers:
            context = ReturnContext(0, steps, whole("ms", m))
            methods[f"{name}_{m}"] = kind(context=context, context_head=context_head)
    arms = {}
    for name, method in methods.items():
        core = Core(method, obs_dim, n_actions, hidden, recurrent, seed=seed)
        arms[name] = _arm(core, method, batch)
    found = interleave(arms, repeats)
    ratios = {
        f"{name}_ratio": found[f"{name}_s"] / found["iql_s"] for name in methods if name != "iql"
    }
    return {**found, **ratios}


def _arm(core: Core, method: Method, batch: EpisodeBatch) -> Callable[[], Any]:
    return lambda: core.step(method.loss(core.net, core.target, batch))


def _episodes(episodes: int, steps: int, obs_dim: int, n_actions: int, seed: int) -> EpisodeBatch:
    g = torch.Generator().manual_seed(seed)
    terminated = torch.zeros(episodes, steps)
    terminated[:, -1] = 1
    return EpisodeBatch(
        obs=torch.randn(episodes, steps + 1, obs_dim, generator=g),
        mask=torch.ones(episodes, steps + 1, n_actions, dtype=torch.bool),
        actions=torch.randint(n_actions, (episodes, steps), generator=g),
        rewards=torch.rand(episodes, steps, generator=g),
        terminated=terminated,
        filled=torch.ones(episodes, steps),
    )
