"""Learners for games with few states: a table each, for many independent runs at once.

Every array has a leading axis of runs ("seeds") that share nothing but the clock. All learners
have one interface: `act`, `learn` at the end of an episode, `greedy`, `action_values`. They share
these conventions:

- An episode is learned backwards, last step first.
- The first visit of an entry sets its value; later ones move it by `alpha`. So results do not
  depend on how the table was initialised, except through acting. Never visited entries act with
  value `init` and are left out of bootstrapping. With ``first_visit=False`` an entry learns from
  `init` on as in textbooks. Learners that are slow to forget (hysteretic, lenient) want that where
  the first outcome of a good action is likely to be a bad one.
- Ties between actions are broken by a random order of each run's own, drawn once. Learners that
  all took the first of equal actions would agree by accident.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from assay.papers.rac.context import ReturnContext
from assay.toolkits.checks import number, whole


class Transitions(NamedTuple):
    """One transition of each run that is still playing, ``(k,)`` each."""

    runs: np.ndarray
    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    successors: np.ndarray
    terminated: np.ndarray


class TabularLearner:
    """What all tabular learners share: acting, and the walk back through an episode.

    Args:
        n_states: Number of states, those at the end of an episode included.
        n_actions: Number of this agent's actions.
        alpha: Learning rate, 0 to 1.
        gamma: Discount, 0 to 1.
        init: Value of an entry that was never visited.
        first_visit: Whether the first visit sets an entry's value.
        seeds: Number of independent runs.
        rng: Source of exploration and of the order that breaks ties; a generator or a seed.

    Attributes:
        q: Action values, ``(seeds, states, actions)``.
        visits: How often each entry was updated, of the same shape; one more without `first_visit`.

    Raises:
        TypeError, ValueError: An argument outside its range, named in the message.
    """

    def __init__(
        self,
        n_states: int,
        n_actions: int,
        alpha: float = 0.1,
        gamma: float = 0.99,
        init: float = 0.0,
        first_visit: bool = True,
        seeds: int = 1,
        rng: np.random.Generator | int = 0,
    ) -> None:
        self.n_states = whole("n_states", n_states)
        self.n_actions = whole("n_actions", n_actions)
        self.alpha = number("alpha", alpha, least=0, most=1)
        self.gamma = number("gamma", gamma, least=0, most=1)
        self.init = number("init", init)
        self.seeds = whole("seeds", seeds)
        self.rng = np.random.default_rng(rng)
        self.q = np.full((seeds, n_states, n_actions), self.init)
        self.first_visit = first_visit
        self.visits = np.full(self.q.shape, int(not first_visit))
        self._runs = np.arange(seeds)
        self._order = self.rng.random(self.q.shape)

    def action_values(self) -> np.ndarray:
        """The values that the learner acts on, ``(seeds, states, actions)``."""
        return self.q

    def greedy(self, states: np.ndarray) -> np.ndarray:
        """The best action of each run, ``(seeds,)``.

        Args:
            states: One state of each run, ``(seeds,)``.
        """
        values = self._values_at(states)
        best = values == values.max(-1, keepdims=True)
        return np.where(best, self._order[self._runs, states], -1.0).argmax(-1)

    def act(self, states: np.ndarray, epsilon: float) -> np.ndarray:
        """An action of each run: random with probability `epsilon`, else greedy; ``(seeds,)``.

        Args:
            states: One state of each run, ``(seeds,)``.
            epsilon: 0 to 1; keep it fixed within an episode.
        """
        explore = self.rng.random(self.seeds) < epsilon
        random = self.rng.integers(self.n_actions, size=self.seeds)
        return np.where(explore, random, self.greedy(states))

    def learn(
        self,
        states: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray | None = None,
        filled: np.ndarray | None = None,
    ) -> None:
        """Learns one finished episode of every run.

        Args:
            states: ``(T + 1, seeds)``, the one after the last step included.
            actions: This agent's, ``(T, seeds)``.
            rewards: The shared reward, ``(T, seeds)``.
            terminated: True where the game itself ended, ``(T, seeds)``; a step limit is no such
                end. Default: at the last step of every run.
            filled: False for steps after the end of a run's episode. Default: none.

        Raises:
            ValueError: Where shapes disagree, or a reward is NaN or infinite.
        """
        steps, runs = actions.shape
        if states.shape != (steps + 1, runs) or rewards.shape != actions.shape:
            raise ValueError(
                f"states, rewards: got {states.shape} and {rewards.shape}, wants "
                f"({steps + 1}, {runs}) and ({steps}, {runs}) for these actions"
            )
        if runs != self.seeds:
            raise ValueError(f"actions: got {runs} runs, wants {self.seeds}")
        if filled is None:
            filled = np.ones(actions.shape, dtype=bool)
        if terminated is None:
            terminated = np.zeros(actions.shape, dtype=bool)
            terminated[-1] = True
        bad = ~np.isfinite(rewards) & filled
        if bad.any():
            step, run = np.argwhere(bad)[0]
            raise ValueError(f"rewards: got {rewards[step, run]} at step {step} of run {run}")
        self._begin(np.where(filled, rewards, 0.0).sum(0))
        for t in reversed(range(steps)):
            on = np.flatnonzero(filled[t])
            self._step(
                Transitions(
                    on,
                    states[t, on],
                    actions[t, on],
                    rewards[t, on],
                    states[t + 1, on],
                    terminated[t, on],
                )
            )

    def _values_at(self, states: np.ndarray) -> np.ndarray:
        return self.q[self._runs, states]

    def _begin(self, returns: np.ndarray) -> None:
        """Called with each run's undiscounted return before its episode is learned."""

    def _step(self, step: Transitions) -> None:
        self._update((step.runs, step.states, step.actions), self._target(step))

    def _target(self, step: Transitions) -> np.ndarray:
        return self._backup(step, self.q, self.visits, (step.runs, step.successors))

    def _backup(
        self, step: Transitions, values: np.ndarray, seen: np.ndarray, at: tuple[np.ndarray, ...]
    ) -> np.ndarray:
        ahead = best_visited(values[at], seen[at], self.init)
        return step.rewards + self.gamma * np.where(step.terminated, 0.0, ahead)

    def _update(self, entry: tuple[np.ndarray, ...], target: np.ndarray) -> None:
        old, fresh = self.q[entry], self.first_visit & (self.visits[entry] == 0)
        rate = np.where(fresh, 1.0, self._rate(entry, target >= old))
        self.q[entry] = (1 - rate) * old + rate * target
        self.visits[entry] += 1

    def _rate(self, entry: tuple[np.ndarray, ...], better: np.ndarray) -> np.ndarray | float:
        return self.alpha


def best_visited(values: np.ndarray, visits: np.ndarray, init: float) -> np.ndarray:
    """Largest value over the last axis among visited entries; `init` where there is none.

    Args:
        values: ``(..., k)``.
        visits: How often each was visited, ``(..., k)``.
        init: What an unvisited row is worth.
    """
    best = np.where(visits > 0, values, -np.inf).max(-1)
    return np.where(np.isneginf(best), init, best)


class TabularIQL(TabularLearner):
    """Independent Q-learning: ``Q(s,a) += alpha (r + gamma max Q(s',.) - Q(s,a))``.

    Args and attributes as in `TabularLearner`.
    """


class TabularHysteretic(TabularLearner):
    """Hysteretic Q-learning: errors below zero are learned `beta` times as fast.

    ``beta=1`` is independent Q-learning; ``beta=0`` with ``alpha=1`` is distributed Q-learning.

    Args:
        n_states, n_actions: As in `TabularLearner`.
        beta: 0 to 1. Tune it: large values forget the good outcome, small ones believe in luck.
        **options: The other arguments of `TabularLearner`.

    Raises:
        ValueError: Where `beta` is outside 0 to 1.

    Source: Matignon, Laurent and Le Fort-Piat, IROS 2007.
    """

    def __init__(self, n_states: int, n_actions: int, beta: float = 0.1, **options: Any) -> None:
        super().__init__(n_states, n_actions, **options)
        self.beta = number("beta", beta, least=0, most=1)

    def _rate(self, entry: tuple[np.ndarray, ...], better: np.ndarray) -> np.ndarray:
        return np.where(better, self.alpha, self.beta * self.alpha)


class TabularDistributedQ(TabularLearner):
    """Distributed Q-learning: ``Q <- max(Q, target)``, with a memory of the policy.

    The greedy action of a state changes only where its value *strictly* exceeds the best one
    there, so that agents who see the same rewards settle on the same one of several optima.

    Args and attributes as in `TabularLearner`; `alpha` is not used.

    Source: Lauer and Riedmiller, ICML 2000.
    """

    def __init__(self, n_states: int, n_actions: int, **options: Any) -> None:
        super().__init__(n_states, n_actions, **options)
        self.policy = self._order.argmax(-1)

    def greedy(self, states: np.ndarray) -> np.ndarray:
        """The remembered action of each run, ``(seeds,)``.

        Args:
            states: One state of each run, ``(seeds,)``.
        """
        return self.policy[self._runs, states]

    def _update(self, entry: tuple[np.ndarray, ...], target: np.ndarray) -> None:
        runs, states, actions = entry
        best = np.where(self.visits[runs, states] > 0, self.q[runs, states], -np.inf).max(-1)
        better = target > best
        self.policy[runs[better], states[better]] = actions[better]
        super()._update(entry, target)

    def _rate(self, entry: tuple[np.ndarray, ...], better: np.ndarray) -> np.ndarray:
        return better.astype(float)


class TabularLenient(TabularLearner):
    """Lenient Q-learning: forgives its partners' mistakes while it is young.

    Each entry has a temperature T. An error below zero is learned with probability
    ``1 - exp(-1 / (moderation T))``: seldom while hot, almost always when cold. At each visit
    ``T <- decay ((1 - diffusion) T(s,a) + diffusion mean T(s',.))``, without the second term at
    the end of a game. This is the convention of LMRL2, apart from its Boltzmann exploration: all
    learners here explore with the same epsilon. Tune `decay` to the number of visits to come.

    Args:
        n_states, n_actions: As in `TabularLearner`.
        temperature: Initial T > 0.
        decay: Factor at each visit, 0 to 1.
        moderation: Of leniency, > 0; larger forgives more.
        diffusion: How much of the next state's temperature flows back, 0 to 1.
        **options: The other arguments of `TabularLearner`.

    Raises:
        ValueError: An argument outside its range, named in the message.

    Source: Wei and Luke, JMLR 17 (2016), LMRL2.
    """

    def __init__(
        self,
        n_states: int,
        n_actions: int,
        temperature: float = 50.0,
        decay: float = 0.995,
        moderation: float = 1.0,
        diffusion: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(n_states, n_actions, **options)
        self.decay = number("decay", decay, least=0, most=1)
        self.moderation = number("moderation", moderation, above=0)
        self.diffusion = number("diffusion", diffusion, least=0, most=1)
        self.temperature = np.full(self.q.shape, number("temperature", temperature, above=0))

    def _rate(self, entry: tuple[np.ndarray, ...], better: np.ndarray) -> np.ndarray:
        heat = self.moderation * self.temperature[entry]
        with np.errstate(divide="ignore"):
            accept = self.rng.random(len(heat)) < 1 - np.exp(-1 / heat)
        return np.where(better | accept, self.alpha, 0.0)

    def _step(self, step: Transitions) -> None:
        super()._step(step)
        entry = (step.runs, step.states, step.actions)
        ahead = self.temperature[step.runs, step.successors].mean(-1)
        share = np.where(step.terminated, 0.0, self.diffusion)
        mixed = (1 - share) * self.temperature[entry] + share * ahead
        self.temperature[entry] = self.decay * mixed


class TabularI2Q(TabularLearner):
    """I2Q: learns as if the next state were always the best one that its action ever led to.

    QSS(s,s') is learned by ``r + gamma max QSS(s',.)`` over transitions seen; the ideal successor
    s* of (s,a) is the best of those that followed it; then
    ``Q(s,a) += alpha (r(s,s*) + gamma max Q(s*,.) - Q(s,a))``.

    The successor must tell apart what the partners did. In a one-step game whose end is always
    the same state this is independent Q-learning; give the outcome as the last state there.

    Args:
        n_states, n_actions: As in `TabularLearner`.
        n_successors: Most states that can follow one state.
        **options: The other arguments of `TabularLearner`.

    Attributes:
        qss: Values of transitions, ``(seeds, states, n_successors)``.
        successors: Which state each of them leads to, of the same shape; -1 for none yet.

    Raises:
        ValueError: At an episode in which a state has more successors than `n_successors`.

    Source: Jiang and Lu, NeurIPS 2022. Their code learns from a replay of single steps, ten batches
    of 100 every 50 steps; here each episode is learned once, backwards, as all tables do.
    """

    def __init__(self, n_states: int, n_actions: int, n_successors: int, **options: Any) -> None:
        super().__init__(n_states, n_actions, **options)
        shape = (self.seeds, n_states, whole("n_successors", n_successors))
        self.qss = np.full(shape, self.init)
        self.successors = np.full(shape, -1, dtype=np.int64)
        self._reward = np.zeros(shape)
        self._ends = np.zeros(shape, dtype=bool)
        self._known = np.zeros(shape, dtype=bool)
        self._reached = np.zeros((self.seeds, n_states, n_actions, n_successors), dtype=bool)

    def _slot(self, step: Transitions) -> np.ndarray:
        table = self.successors[step.runs, step.states]
        match = (table == step.successors[:, None]) | (table == -1)
        if not match.any(-1).all():
            raise ValueError(
                f"n_successors: got {table.shape[1]}, wants the most states that follow one state"
            )
        return match.argmax(-1)

    def _step(self, step: Transitions) -> None:
        runs, states = step.runs, step.states
        slot = self._slot(step)
        place = (runs, states, slot)
        rate = np.where(self._known[place], self.alpha, 1.0)
        self.successors[place] = step.successors
        self._known[place] = True
        self._reward[place] = step.rewards
        self._ends[place] = step.terminated
        self._reached[runs, states, step.actions, slot] = True

        target = self._backup(step, self.qss, self._known, (runs, step.successors))
        self.qss[place] = (1 - rate) * self.qss[place] + rate * target

        reached = self._reached[runs, states, step.actions]
        ideal = np.where(reached, self.qss[runs, states], -np.inf).argmax(-1)
        place = (runs, states, ideal)
        super()._step(
            step._replace(
                rewards=self._reward[place],
                successors=self.successors[place],
                terminated=self._ends[place],
            )
        )


class TabularRAC(TabularLearner):
    """Return-aware context with a table: Q_C(s, kappa, a), and its maximum over contexts.

    It acts on ``phi(s,a) = max_kappa Q_C(s, kappa, a)`` over contexts in which (s,a) was visited.
    There is no second table to distil phi into: a table never extrapolates.

    Args:
        n_states, n_actions: As in `TabularLearner`.
        context: Intervals of returns, the same for all runs.
        **options: The other arguments of `TabularLearner`.

    Attributes:
        q: Q_C, ``(seeds, states, m, actions)``.
        visits: How often each entry was updated, of the same shape.

    Source: the paper's section on the method, with a table in place of the networks.
    """

    def __init__(
        self, n_states: int, n_actions: int, context: ReturnContext, **options: Any
    ) -> None:
        super().__init__(n_states, n_actions, **options)
        self.context = context
        shape = (self.seeds, n_states, context.bins, n_actions)
        self.q = np.full(shape, self.init)
        # A context that no episode had is not one of value `init`, whatever the first visit does.
        self.visits = np.zeros(shape, dtype=np.int64)
        self._kappa = np.zeros(self.seeds, dtype=np.int64)

    def action_values(self) -> np.ndarray:
        """phi, ``(seeds, states, actions)``."""
        return best_visited(self.q.swapaxes(-1, -2), self.visits.swapaxes(-1, -2), self.init)

    def _values_at(self, states: np.ndarray) -> np.ndarray:
        at = self._runs, states
        return best_visited(
            self.q[at].swapaxes(-1, -2), self.visits[at].swapaxes(-1, -2), self.init
        )

    def _begin(self, returns: np.ndarray) -> None:
        self._kappa = self.context.index(returns)

    def _target(self, step: Transitions) -> np.ndarray:
        at = (step.runs, step.successors, self._kappa[step.runs])
        return self._backup(step, self.q, self.visits, at)

    def _update(self, entry: tuple[np.ndarray, ...], target: np.ndarray) -> None:
        runs, states, actions = entry
        super()._update((runs, states, self._kappa[runs], actions), target)
