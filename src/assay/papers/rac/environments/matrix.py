"""One payoff table for all: matrix games, and sequences of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.papers.rac.environments.game import CooperativeGame
from assay.toolkits.checks import flag


class MatrixGame(CooperativeGame):
    """A cooperative matrix game, or several that are played one after the other.

    Every agent sees which stage is next and gets the payoff of the joint action; nobody sees what
    the others chose. An episode is one play of every stage. The state never depends on actions,
    so that whatever fails here fails by what others do, not for want of exploration in time.

    Args:
        *stages: A table of payoffs ``(|A_1|, ..., |A_n|)`` for each stage, of the same shape; or,
            where luck has a part, a list of ``(probability, table)`` pairs, of which one is drawn
            at each play.
        show_joint_action: Whether observations also hold the last joint action, one-hot for each
            agent in turn. For methods that learn from the next state alone, such as I2Q.
        render_mode: ``"ansi"`` or None.

    Attributes:
        lotteries: For each stage the probabilities ``(k,)`` and the tables that they draw from,
            ``(k, |A_1|, ..., |A_n|)``.
        expected: The stages' expected payoffs, an array ``(stages, |A_1|, ..., |A_n|)``.
        best_return: Largest expected return.

    Raises:
        TypeError: Where `show_joint_action` is no bool.
        ValueError: Where tables differ in shape, hold NaN or infinity or have no agent's axis,
            where probabilities are no distribution, or for another `render_mode`.

    Observations are float32 vectors: the stage, one-hot, all zero at the end.
    """

    metadata = {"name": "matrix_game", "render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(
        self, *stages: Any, show_joint_action: bool = False, render_mode: str | None = None
    ) -> None:
        if not stages:
            raise ValueError("stages: got none, wants at least one table of payoffs")
        lotteries = [_lottery(stage) for stage in stages]
        shapes = {table.shape for _, tables in lotteries for table in tables}
        if len(shapes) > 1:
            raise ValueError(f"stages: got tables of shapes {sorted(shapes)}, wants one shape")
        self.lotteries = lotteries
        self.expected = np.stack([np.tensordot(p, tables, 1) for p, tables in lotteries])
        self.best_return = float(self.expected.reshape(len(stages), -1).max(axis=1).sum())
        shape = self.expected.shape[1:]
        flag("show_joint_action", show_joint_action)
        size = len(stages) + show_joint_action * sum(shape)
        super().__init__([f"agent_{i}" for i in range(len(shape))], shape, size, size, render_mode)
        self._show_joint_action = show_joint_action
        self._start()

    def _start(self) -> None:
        self._stage = 0
        self._joint: tuple[int, ...] | None = None

    def _play(self, joint: np.ndarray) -> tuple[float, list[bool], bool]:
        probabilities, tables = self.lotteries[self._stage]
        drawn = self._random.choice(len(tables), p=probabilities) if len(tables) > 1 else 0
        self._joint = tuple(joint.tolist())
        self._stage += 1
        over = self._stage == len(self.lotteries)
        return float(tables[drawn][self._joint]), [over] * len(joint), False

    def _observe(self, agent: str) -> np.ndarray:
        return self.state()

    def state(self) -> np.ndarray:
        stages = len(self.lotteries)
        vector = np.zeros(self.state_space.shape, np.float32)
        vector[:stages] = np.arange(stages) == self._stage
        if self._show_joint_action and self._joint is not None:
            sizes = self.expected.shape[1:]
            starts = stages + np.cumsum((0, *sizes[:-1]))
            vector[starts + np.asarray(self._joint)] = 1.0
        return vector

    def render(self) -> str | None:
        if self.render_mode is None:
            return None
        lines = [f"stage {self._stage} of {len(self.lotteries)}, last joint action {self._joint}"]
        if self._stage < len(self.lotteries):
            lines.append(np.array2string(self.expected[self._stage], precision=2))
        return "\n".join(lines)


def _lottery(stage: Any) -> tuple[np.ndarray, np.ndarray]:
    """A stage as probabilities ``(k,)`` and tables ``(k, |A_1|, ..., |A_n|)``."""
    pairs = [(1.0, stage)]
    if isinstance(stage, Sequence) and all(
        isinstance(pair, tuple) and len(pair) == 2 and np.ndim(pair[0]) == 0 < np.ndim(pair[1])
        for pair in stage
    ):
        pairs = list(stage)
    try:
        probabilities = np.array([p for p, _ in pairs], dtype=float)
        tables = np.stack([np.asarray(table, dtype=float) for _, table in pairs])
    except (TypeError, ValueError) as error:
        raise ValueError(f"stages: wants tables of payoffs of one shape: {error}") from None
    if tables.ndim < 2 or tables.size == 0:
        raise ValueError(f"stages: got shape {tables.shape[1:]}, wants an axis for each agent")
    if not np.isfinite(tables).all():
        raise ValueError("stages: got NaN or infinity, wants finite payoffs")
    if not ((probabilities > 0).all() and np.isclose(probabilities.sum(), 1.0)):
        raise ValueError(
            f"stages: got probabilities {probabilities.tolist()}, wants some > 0 that add up to 1"
        )
    return probabilities / probabilities.sum(), tables


def paper_game(**options: Any) -> MatrixGame:
    """The paper's game (Table 1): the best joint action pays 8, a miss of it -12.

    Args:
        **options: Those of `MatrixGame`.
    """
    return MatrixGame([[8, -12, -12], [-12, 6, 0], [-12, 0, 6]], **options)


def climbing(**options: Any) -> MatrixGame:
    """The climbing game (Claus and Boutilier, 1998): 11 is best, and 5 the safe choice.

    Args:
        **options: Those of `MatrixGame`.
    """
    return MatrixGame([[11, -30, 0], [-30, 7, 6], [0, 0, 5]], **options)


def penalty(k: float = -10, **options: Any) -> MatrixGame:
    """The penalty game (Claus and Boutilier, 1998): two best joint actions that must be told apart.

    Args:
        k: What a miss of them costs, <= 0.
        **options: Those of `MatrixGame`.

    Raises:
        ValueError: For `k` > 0.
    """
    if not k <= 0:
        raise ValueError(f"k: got {k}, wants <= 0")
    return MatrixGame([[10, 0, k], [0, 2, 0], [k, 0, 10]], **options)


def partially_stochastic_climbing(**options: Any) -> MatrixGame:
    """Climbing in which luck has a part (Kapetanakis and Kudenko, 2002): 7 becomes 14 or 0.

    Args:
        **options: Those of `MatrixGame`.
    """
    lucky, unlucky = ([[11, -30, 0], [-30, luck, 6], [0, 0, 5]] for luck in (14, 0))
    return MatrixGame([(0.5, lucky), (0.5, unlucky)], **options)


def stochastic_climbing(**options: Any) -> MatrixGame:
    """Climbing in which every payoff has two values (Kapetanakis and Kudenko, 2002).

    Args:
        **options: Those of `MatrixGame`.
    """
    first = [[10, 5, 8], [5, 14, 12], [5, 5, 7]]
    second = [[12, -65, -8], [-65, 0, 0], [-5, -5, 3]]
    return MatrixGame([(0.5, first), (0.5, second)], **options)
