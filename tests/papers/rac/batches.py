"""Random episodes for tests."""

from __future__ import annotations

import torch

from assay.papers.rac.batch import EpisodeBatch


def random_batch(
    episodes=4, steps=5, obs_dim=3, actions=3, dtype=torch.float32, seed=0, reward=1.0
) -> EpisodeBatch:
    """Episodes of different lengths with masked actions, some ended and some cut short."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, steps + 1, (episodes,), generator=g)
    lengths[0] = steps
    filled = (torch.arange(steps) < lengths[:, None]).to(dtype)
    terminated = torch.zeros(episodes, steps, dtype=dtype)
    terminated[torch.arange(episodes), lengths - 1] = (torch.arange(episodes) % 2).to(dtype)
    mask = torch.rand(episodes, steps + 1, actions, generator=g) < 0.7
    chosen = torch.randint(actions, (episodes, steps), generator=g)
    mask[:, :-1].scatter_(-1, chosen[..., None], True)
    mask[:, -1, 0] = True
    rewards = reward * torch.randn(episodes, steps, generator=g, dtype=dtype) * filled
    obs = torch.randn(episodes, steps + 1, obs_dim, generator=g, dtype=dtype)
    return EpisodeBatch(obs, mask, chosen, rewards, terminated, filled)
