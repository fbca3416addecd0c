"""Many games of predator-prey at once, in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from assay.papers.rac.environments.predator_prey import ACTIONS, CATCH, MOVES, RADIUS, check_rules


class BatchedPredatorPrey:
    """`PredatorPrey`, `batch` games side by side on one device.

    All start together with `reset`. A game that is over stays as it is and pays nothing.

    Args:
        batch: Number of games, >= 1.
        size: As in `PredatorPrey`, like all up to `observation`.
        predators: Number of agents.
        preys: Number of prey.
        punishment: Reward of a lone attempt.
        reward: Reward of a catch.
        limit: Most steps of an episode.
        prey_moves: Whether prey walk.
        observation: ``"state"`` or ``"window"``.
        seed: Of the starting places and the walks of prey.
        device: Where the tensors live.

    Attributes:
        observation_size: Length of an agent's observation.
        n_actions: Number of an agent's actions.
        present: Bool ``(batch, predators)``, who still takes part.
        over: Bool ``(batch,)``, which games are over.

    Raises:
        TypeError, ValueError: For a parameter out of its range.
    """

    n_actions = len(ACTIONS)

    def __init__(
        self,
        batch: int,
        size: int = 4,
        predators: int = 2,
        preys: int = 1,
        punishment: float = -10.0,
        reward: float = 10.0,
        limit: int = 15,
        prey_moves: bool = False,
        observation: str = "state",
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch: got {batch}, wants an integer >= 1")
        check_rules(size, predators, preys, punishment, reward, limit, observation)
        self.batch = batch
        self.size = size
        self.predators = predators
        self.preys = preys
        self.punishment = float(punishment)
        self.reward = float(reward)
        self.limit = limit
        self.prey_moves = prey_moves
        self.observation = observation
        self.device = torch.device(device)
        window = 2 * (2 * RADIUS + 1) ** 2
        state = (predators + preys) * size**2
        self.observation_size = state if observation == "state" else window
        self._random = torch.Generator(self.device).manual_seed(seed)
        animals = predators + preys
        # Cells are numbered row by row; neighbours[cell, action] is where an action leads.
        cells = torch.arange(size**2, device=self.device)
        rows, columns = cells // size, cells % size
        self._neighbours = torch.stack(
            [(rows + down) % size * size + (columns + right) % size for down, right in MOVES], dim=1
        )
        offsets = torch.arange(-RADIUS, RADIUS + 1, device=self.device)
        window_rows = (rows[:, None] + offsets) % size
        window_columns = (columns[:, None] + offsets) % size
        self._window = (window_rows[:, :, None] * size + window_columns[:, None, :]).flatten(1)
        self._cells = torch.zeros(batch, animals, dtype=torch.long, device=self.device)
        self._here = torch.zeros(batch, animals, dtype=torch.bool, device=self.device)
        self._steps = 0
        self.over = torch.ones(batch, dtype=torch.bool, device=self.device)

    @property
    def present(self) -> torch.Tensor:
        return self._here[:, : self.predators] & ~self.over[:, None]

    def reset(self) -> torch.Tensor:
        """Starts all games anew.

        Returns:
            Observations, float32 ``(batch, predators, observation_size)``.
        """
        order = torch.rand(
            self.batch, self.size**2, generator=self._random, device=self.device
        ).argsort(dim=1)
        self._cells = order[:, : self.predators + self.preys]
        self._here = torch.ones_like(self._cells, dtype=torch.bool)
        self._steps = 0
        self.over = torch.zeros_like(self.over)
        return self._observations()

    def step(
        self, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Plays one step of every game that is not over.

        Args:
            actions: Integers in [0, 6), ``(batch, predators)``; those of predators that are not
                `present` are ignored.

        Returns:
            Observations ``(batch, predators, observation_size)``, zero for predators that have
            left; rewards ``(batch,)``; terminations and truncations ``(batch, predators)``, True
            in the step in which a predator's part ends and not after.

        Raises:
            ValueError: For actions of another shape. Values are not looked at, which would wait
                for the device.
        """
        if actions.shape != (self.batch, self.predators):
            wants = (self.batch, self.predators)
            raise ValueError(f"actions: got shape {tuple(actions.shape)}, wants {wants}")
        wishes = None
        if self.prey_moves:
            shape = (self.batch, self.preys, 4)
            wishes = torch.rand(shape, generator=self._random, device=self.device)
        acting = self.present
        reward = self._advance(actions, wishes)
        self._steps += 1
        hunters, prey = self._here[:, : self.predators], self._here[:, self.predators :]
        over = ~hunters.any(dim=1) | ~prey.any(dim=1)
        terminated = acting & (over[:, None] | ~hunters)
        truncated = acting & ~terminated & (self._steps >= self.limit)
        observations = self._observations()
        self.over = over | (self._steps >= self.limit)
        return observations, reward, terminated, truncated

    def _advance(self, actions: torch.Tensor, wishes: torch.Tensor | None) -> torch.Tensor:
        running = ~self.over
        here = self._here & running[:, None]
        cells = self._cells.clone()
        taken = self._occupied(cells, here)

        def walk(animal: int, goal: torch.Tensor, wants: torch.Tensor) -> None:
            start = cells[:, animal, None]
            goes = wants[:, None] & ~taken.gather(1, goal[:, None])
            end = torch.where(goes, goal[:, None], start)
            # Clearing first: who stays put sets the cell again.
            taken.scatter_(1, start, taken.gather(1, start) & ~here[:, animal, None])
            taken.scatter_(1, end, taken.gather(1, end) | here[:, animal, None])
            cells[:, animal] = end[:, 0]

        for predator in range(self.predators):
            goal = self._neighbours[cells[:, predator], actions[:, predator]]
            walk(predator, goal, here[:, predator])

        reward = torch.zeros(self.batch, device=self.device)
        catching = here[:, : self.predators] & (actions == CATCH)
        for prey in range(self.predators, cells.shape[1]):
            beside = self._neighbours[cells[:, prey], :4]
            near = (cells[:, : self.predators, None] == beside[:, None]).any(dim=2)
            catchers = catching & near & here[:, prey, None]
            number = catchers.sum(dim=1)
            reward += self.punishment * (number == 1) + self.reward * (number > 1)
            leaving = catchers & (number > 1)[:, None]
            catching = catching & ~leaving
            here[:, : self.predators] &= ~leaving
            here[:, prey] &= number < 2

        if wishes is not None:
            taken = self._occupied(cells, here)
            for prey in range(self.predators, cells.shape[1]):
                beside = self._neighbours[cells[:, prey], :4]
                free = ~taken.gather(1, beside)
                wish = wishes[:, prey - self.predators].masked_fill(~free, -1.0)
                goal = beside.gather(1, wish.argmax(dim=1, keepdim=True))[:, 0]
                walk(prey, goal, here[:, prey])

        self._cells = torch.where(running[:, None], cells, self._cells)
        self._here = torch.where(running[:, None], here, self._here)
        return reward

    def _occupied(self, cells: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
        count = torch.zeros(self.batch, self.size**2, device=self.device)
        return count.scatter_add_(1, cells, here.float()) > 0

    def _observations(self) -> torch.Tensor:
        if self.observation == "state":
            planes = F.one_hot(self._cells, self.size**2).float() * self._here[..., None]
            seen = planes.flatten(1)[:, None].expand(-1, self.predators, -1)
        else:
            hunters = self._occupied(
                self._cells[:, : self.predators], self._here[:, : self.predators]
            )
            preys = self._occupied(
                self._cells[:, self.predators :], self._here[:, self.predators :]
            )
            cells = self._window[self._cells[:, : self.predators]]  # batch, predators, 25
            planes = torch.stack((hunters, preys), dim=1).float()
            index = cells.flatten(1)[:, None].expand(-1, 2, -1)
            seen = planes.gather(2, index).unflatten(2, cells.shape[1:]).transpose(1, 2)
            seen = seen.clone()
            seen[:, :, 0, cells.shape[2] // 2] = 0.0  # itself
            seen = seen.flatten(2)
        return seen * self.present[..., None]
