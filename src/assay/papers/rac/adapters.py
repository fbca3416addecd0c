"""Environments of other libraries as PettingZoo parallel environments, and what learners read
from any of them: observations, action masks and the shared reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

TeamReward = Literal["sum", "mean"]


def observation_of(obs_value: Any) -> np.ndarray:
    """One agent's observation as the vector that a network reads.

    Args:
        obs_value: An array or number of any shape, or a mapping that holds one under
            ``"observation"`` (PettingZoo's form with an action mask).

    Returns:
        A float32 vector ``(size,)``.

    Raises:
        TypeError: Where it is no array of numbers.
        ValueError: Where it holds NaN or infinity.
    """
    if isinstance(obs_value, Mapping):
        if "observation" not in obs_value:
            raise TypeError(
                f"obs_value: got a mapping of {sorted(obs_value)}, wants 'observation' in it"
            )
        obs_value = obs_value["observation"]
    try:
        vector = np.asarray(obs_value, dtype=np.float32).ravel()
    except (TypeError, ValueError):
        kind = type(obs_value).__name__
        raise TypeError(f"obs_value: got {kind}, wants an array of numbers") from None
    if not np.isfinite(vector).all():
        raise ValueError("obs_value: got NaN or infinity, wants finite numbers")
    return vector


def action_mask_of(obs_value: Any, info: Mapping[str, Any] | None, n_actions: int) -> np.ndarray:
    """Which actions one agent may take.

    The mask is looked for under ``"action_mask"`` in the observation, then in the info. An
    environment that has none allows every action.

    Args:
        obs_value: The agent's observation.
        info: The agent's info.
        n_actions: Number of the agent's actions.

    Returns:
        A bool vector ``(n_actions,)`` with at least one True.

    Raises:
        ValueError: Where no action is available, where the mask has another length or holds
            other values than 0 and 1, or where an observation of the form
            ``{"observation", "action_mask"}`` came without its mask.
    """
    mask = None
    if isinstance(obs_value, Mapping):
        mask = obs_value.get("action_mask")
    if mask is None and info is not None:
        mask = info.get("action_mask")
    if mask is None:
        if isinstance(obs_value, Mapping):
            raise ValueError("action_mask: in neither the observation nor the info, wants one")
        return np.ones(n_actions, dtype=bool)
    given = np.asarray(mask)
    if given.shape != (n_actions,):
        raise ValueError(f"action_mask: got shape {given.shape}, wants ({n_actions},)")
    if not np.isin(given, (0, 1)).all():
        raise ValueError(f"action_mask: got {given.tolist()}, wants 0 or 1 for each action")
    allowed = given.astype(bool)
    if not allowed.any():
        raise ValueError("action_mask: no action is available")
    return allowed


def shared_reward(rewards: Mapping[str, float], team_reward: TeamReward | None = None) -> float:
    """The one reward of a step that all agents share.

    Args:
        rewards: Each agent's reward of the step.
        team_reward: What to make of unequal rewards: their ``"sum"``, their ``"mean"`` over the
            agents that got one, or None to refuse them.

    Returns:
        The reward.

    Raises:
        ValueError: Where a reward is NaN or infinite, where rewards differ and `team_reward` is
            None, where there are none, or where `team_reward` is no such word.
    """
    if team_reward not in (None, "sum", "mean"):
        raise ValueError(f"team_reward: got {team_reward!r}, wants None, 'sum' or 'mean'")
    if not rewards:
        raise ValueError("rewards: got none, wants one for each agent")
    values = [float(reward) for reward in rewards.values()]
    for agent, value in zip(rewards, values, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"rewards: got {value} for {agent}, wants a finite number")
    if team_reward == "sum":
        return sum(values)
    if team_reward == "mean":
        return sum(values) / len(values)
    if not all(math.isclose(value, values[0], rel_tol=1e-6) for value in values):
        raise ValueError(
            f"rewards: got {dict(zip(rewards, values, strict=True))}, wants equal ones; "
            "team_reward='sum' or 'mean' makes one of them"
        )
    return values[0]
