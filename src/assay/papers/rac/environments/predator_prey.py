"""Punishing predator-prey: a prey is caught by two together, and who tries alone is punished."""

from __future__ import annotations

import numpy as np

from assay.papers.rac.environments.game import CooperativeGame
from assay.toolkits.checks import flag, whole

ACTIONS = ("north", "south", "east", "west", "stay", "catch")
CATCH = ACTIONS.index("catch")
MOVES = ((-1, 0), (1, 0), (0, 1), (0, -1), (0, 0), (0, 0))
"""Rows and columns that each action moves by."""
RADIUS = 2
"""A window shows the cells up to this far: 5 x 5."""
CELL = 48
"""Pixels of a drawn cell's side."""


def check_rules(
    size: int,
    predators: int,
    preys: int,
    punishment: float,
    reward: float,
    limit: int,
    observation: str,
) -> None:
    """Raises an error that names the first parameter of `PredatorPrey` that makes no game."""
    for name, value, least in (
        ("size", size, 2),
        ("predators", predators, 2),
        ("preys", preys, 1),
        ("limit", limit, 1),
    ):
        whole(name, value, least)
    if predators + preys > size**2:
        raise ValueError(f"size: got {size}, wants a cell for each of {predators + preys} animals")
    if not (np.isfinite(punishment) and punishment <= 0):
        raise ValueError(f"punishment: got {punishment}, wants a finite number <= 0")
    if not (np.isfinite(reward) and reward > 0):
        raise ValueError(f"reward: got {reward}, wants a finite number > 0")
    if observation not in ("state", "window"):
        raise ValueError(f"observation: got {observation!r}, wants 'state' or 'window'")
    if observation == "window" and size < 2 * RADIUS + 1:
        raise ValueError(f"size: got {size}, wants >= {2 * RADIUS + 1} for a window")


class PredatorPrey(CooperativeGame):
    """Predators on a torus that must catch prey in pairs.

    A step: predators move, in the order of their numbers, to cells that are free. Then each prey
    is looked at in turn: where two or more predators beside it (Manhattan distance 1) choose
    ``catch``, it is caught, and it and those predators leave; where exactly one does, the team is
    punished. Last, the remaining prey move, if they do. All predators get the step's reward. An
    episode ends (termination) when no prey or no predator is left, and is cut off (truncation)
    at the limit.

    The paper gives the reward of a catch, the punishment, and how many there are of each. The rest
    follows the game of that kind that came with WQMIX (Rashid et al., 2020), except that this
    world has no walls, that animals move in a fixed order, and that all prey are looked at before
    any of them moves.

    Args:
        size: Cells of the grid's side, >= 2; >= 5 for windows.
        predators: Number of agents, >= 2.
        preys: Number of prey, >= 1.
        punishment: Reward where one predator tries to catch a prey alone, <= 0.
        reward: Reward of a catch, > 0.
        limit: Most steps of an episode.
        prey_moves: Whether prey walk to a free cell beside them, at random; else they stand still.
        observation: ``"state"``: where everyone is, for all agents the same: a plane ``(size,
            size)`` for each predator and prey, flat. ``"window"``: the 5 x 5 cells around the
            agent, a plane of other predators and one of prey, flat ``(50,)``.
        render_mode: ``"rgb_array"`` or None.

    Raises:
        TypeError, ValueError: For a parameter out of its range.
    """

    metadata = {  # noqa: RUF012
        "name": "predator_prey",
        "render_modes": ["rgb_array"],
        "render_fps": 4,
    }

    def __init__(
        self,
        size: int = 4,
        predators: int = 2,
        preys: int = 1,
        punishment: float = -10.0,
        reward: float = 10.0,
        limit: int = 15,
        prey_moves: bool = False,
        observation: str = "state",
        render_mode: str | None = None,
    ) -> None:
        check_rules(size, predators, preys, punishment, reward, limit, observation)
        flag("prey_moves", prey_moves)
        names = [f"predator_{i}" for i in range(predators)]
        everywhere = (predators + preys) * size**2
        seen = everywhere if observation == "state" else 2 * (2 * RADIUS + 1) ** 2
        super().__init__(names, [len(ACTIONS)] * predators, seen, everywhere, render_mode)
        self.size = size
        self.punishment = float(punishment)
        self.reward = float(reward)
        self.limit = limit
        self.prey_moves = prey_moves
        self.observation = observation
        self._cells = np.zeros((predators + preys, 2), int)
        self._here = np.zeros(predators + preys, bool)
        self._steps = 0

    def _start(self) -> None:
        chosen = self._random.choice(self.size**2, len(self._cells), replace=False)
        self._cells = np.stack(np.divmod(chosen, self.size), axis=1)
        self._here[:] = True
        self._steps = 0

    def _play(self, joint: np.ndarray) -> tuple[float, np.ndarray, bool]:
        predators = len(joint)
        wishes = None
        if self.prey_moves:
            wishes = self._random.random((len(self._cells) - predators, 4))
        reward = self._advance(joint, wishes)
        self._steps += 1
        hunters, preys = self._here[:predators], self._here[predators:]
        over = not (hunters.any() and preys.any())
        return reward, ~hunters | over, self._steps >= self.limit

    def _advance(self, actions: np.ndarray, wishes: np.ndarray | None) -> float:
        """Plays one step and returns its reward.

        Prey walk to the free neighbour that they wish for most; `wishes` ``(preys, 4)``.
        """
        predators = len(actions)
        taken = np.zeros((self.size, self.size), bool)
        taken[tuple(self._cells[self._here].T)] = True

        def walk(animal: int, action: int) -> bool:
            goal = tuple((self._cells[animal] + MOVES[action]) % self.size)
            if taken[goal]:
                return False
            taken[tuple(self._cells[animal])] = False
            taken[goal] = True
            self._cells[animal] = goal
            return True

        for predator, action in enumerate(actions):
            if self._here[predator]:
                walk(predator, action)

        reward = 0.0
        catching = self._here[:predators] & (actions == CATCH)
        for prey in range(predators, len(self._cells)):
            if not self._here[prey]:
                continue
            apart = np.abs(self._cells[:predators] - self._cells[prey])
            distance = np.minimum(apart, self.size - apart).sum(axis=1)
            catchers = catching & (distance == 1)
            if catchers.sum() == 1:
                reward += self.punishment
            elif catchers.any():
                reward += self.reward
                catching &= ~catchers
                self._here[:predators] &= ~catchers
                self._here[prey] = False

        if wishes is not None:
            taken[:] = False
            taken[tuple(self._cells[self._here].T)] = True
            for prey in range(predators, len(self._cells)):
                if self._here[prey]:
                    # The first free one of the four is taken, the most wished for first.
                    any(walk(prey, move) for move in np.argsort(-wishes[prey - predators]))
        return reward

    def state(self) -> np.ndarray:
        planes = np.zeros((len(self._cells), self.size, self.size), np.float32)
        animals = np.flatnonzero(self._here)
        planes[(animals, *self._cells[animals].T)] = 1.0
        return planes.ravel()

    def _observe(self, agent: str) -> np.ndarray:
        if self.observation == "state":
            return self.state()
        predators = len(self.possible_agents)
        row, column = self._cells[self.possible_agents.index(agent)]
        window = np.zeros((2, 2 * RADIUS + 1, 2 * RADIUS + 1), np.float32)
        # From each animal's place to that of the window's corner.
        places = (self._cells - (row, column) + RADIUS) % self.size
        inside = self._here & (places < window.shape[1]).all(axis=1)
        kinds = (np.arange(len(places)) >= predators).astype(int)
        window[kinds[inside], places[inside, 0], places[inside, 1]] = 1.0
        window[0, RADIUS, RADIUS] = 0.0  # itself
        return window.ravel()

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        from PIL import Image, ImageDraw

        scale = 4  # drawn larger and shrunk, for smooth edges
        cell = CELL * scale
        image = Image.new("RGB", (self.size * cell, self.size * cell), "#f4f1ea")
        draw = ImageDraw.Draw(image)
        for row in range(self.size):
            for column in range(row % 2, self.size, 2):
                corner = (column * cell, row * cell)
                draw.rectangle((*corner, corner[0] + cell, corner[1] + cell), fill="#e9e4d8")
        predators = len(self.possible_agents)
        for animal in np.flatnonzero(self._here):
            row, column = self._cells[animal]
            x, y = (column + 0.5) * cell, (row + 0.5) * cell
            radius = 0.36 * cell
            if animal < predators:
                box = (x - radius, y - radius, x + radius, y + radius)
                draw.ellipse(box, fill="#b5482f")
                label = str(animal)
                draw.text((x, y), label, fill="white", anchor="mm", font_size=0.4 * cell)
            else:
                corners = [(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)]
                draw.polygon(corners, fill="#2f7f6f")
        return np.asarray(image.resize((self.size * CELL, self.size * CELL), Image.Resampling.BOX))
