"""What both samplers share: the loop, its state, what is checked, and what comes out."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from assay.papers.multalmc.srock import Scalar
from assay.papers.multalmc.target import CountedTarget, as_target
from assay.toolkits.checks import flag, whole

if TYPE_CHECKING:
    import arviz

MOST_DEAD = 0.01
"""Largest share of chains that may leave the numbers before a run is refused."""

LOOK_EVERY = 64
"""Steps between two looks for such chains: each look waits for the device."""

PATH_FRAMES = 100


@dataclass(frozen=True)
class State:
    """Where all chains are after `step` steps.

    Attributes:
        step: steps done, from 0 to n_steps.
        x: positions, (N, d).
        v: velocities, (N, d), before the second half of the step's friction, which nothing reads
            and the next step does together with the first half of its own; None if overdamped.
        y: fast variable, (N, d); None once it is dropped.
        gradient: grad log pi at x where the next step needs it again, else None.
        alive: chains that were finite at the last look, (N,).
        n_grad, n_logp: evaluations so far of each chain.
    """

    step: int
    x: Tensor
    v: Tensor | None
    y: Tensor | None
    gradient: Tensor | None
    alive: Tensor
    n_grad: int = 0
    n_logp: int = 0


class StepInfo(NamedTuple):
    """What a step did.

    Attributes:
        lam: lambda during it.
        n_grad: gradients of each chain that it evaluated.
    """

    lam: float
    n_grad: int


@dataclass(frozen=True)
class SampleResult:
    """Draws, and what they cost.

    Attributes:
        samples: (N, d), one of each chain; NaN where `finite_mask` is False.
        n_grad: gradients that each chain evaluated.
        n_logp: log-densities that each chain evaluated alone.
        seconds: wall time of the call.
        finite_mask: chains that stayed finite, (N,).
        trace: {"lambda": (L,)} and, with `return_path`, "path", (F, N, d), and "path_steps",
            (F,), the number of steps before each frame. None from a method without a path.
    """

    samples: Tensor
    n_grad: int
    n_logp: int
    seconds: float
    finite_mask: Tensor
    trace: dict[str, Tensor] | None = None

    def to_inference_data(self) -> arviz.InferenceData:
        """The finite draws for arviz, as variable "x" of shape (N chains, 1 draw, d).

        Chains are independent and give one draw each, so that R-hat and effective sample size,
        which look within chains, mean nothing here.

        Raises:
            ModuleNotFoundError: arviz is not installed.
        """
        import arviz

        draws = self.samples[self.finite_mask].detach().cpu().numpy()[:, None, :]
        costs = {"n_grad": self.n_grad, "n_logp": self.n_logp, "seconds": self.seconds}
        dataset = arviz.dict_to_dataset({"x": draws}, attrs={**costs, "draws_per_chain": 1})
        return arviz.InferenceData(posterior=dataset)


class TooManyDead(ValueError):
    """More than 1 % of the chains left the numbers."""


class Sampler(ABC):
    """A sampler of n_steps steps from N independent starts to N draws.

    `sample` runs it; `init` and `step` are the same for people with a loop of their own.

    Args:
        target: what `as_target` accepts.
        n_steps: L, >= 1.
        dim: d, where the target is a function alone.
        generator: of the random numbers, on the device that is sampled on; by default a new one,
            seeded from torch's global one.
        compile: runs the steps through torch.compile, which takes a minute at their first use
            and fewer passes over memory at each; the random numbers and the look for lost chains
            stay outside, so that the draws are those without it but for rounding.
            torch.compile turns the validation of torch.distributions off in the whole process, and
            keeps eight graphs of a step, after which it runs further ones as they are.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or out of range.
    """

    def __init__(
        self,
        target: Any,
        *,
        n_steps: int,
        dim: int | None = None,
        generator: torch.Generator | None = None,
        compile: bool = False,
    ) -> None:
        self.target: CountedTarget = as_target(target, dim)
        self.dim = self.target.dim
        self.n_steps = whole("n_steps", n_steps)
        if generator is not None:
            _check_generator(generator)
        self.generator = generator
        self.compile = flag("compile", compile)
        self.lambdas: list[float] = []
        self._rows: Sequence[tuple[Scalar, ...]] = []
        self._table: Tensor | None = None
        self._work: Tensor | None = None
        self._running: _Running | None = None
        self._resumed: _Running | None = None

    @abstractmethod
    def _start(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> State:
        """The state before the first step, with `alive` all True."""

    @abstractmethod
    def _advance(self, generator: torch.Generator, state: State) -> State:
        """The state after one more step; `n_grad` counts what it evaluated."""

    def _compiled(self, step: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(step) if self.compile else step

    def _row(self, step: int, like: Tensor) -> Tensor | tuple[Scalar, ...]:
        """The numbers of a step; for compiled code, which takes floats for constants, a tensor."""
        if not self.compile:
            return self._rows[step]
        # Copied to the device once: a copy in each step would wait for it.
        if self._table is None or (self._table.dtype, self._table.device) != (
            like.dtype,
            like.device,
        ):
            self._table = torch.tensor(self._rows, dtype=like.dtype, device=like.device)
        return self._table[step]

    def _workspace(self, count: int, like: Tensor) -> Tensor:
        """Memory for the draws and the intermediate results of a step, (count, N, d)."""
        work = self._work
        if work is None or (work[0].shape, work.dtype, work.device) != (
            like.shape,
            like.dtype,
            like.device,
        ):
            work = self._work = like.new_empty((count, *like.shape))
        return work

    def init(
        self, n: int, generator: torch.Generator, *, dtype: torch.dtype | None = None
    ) -> State:
        """Draws N starts on the generator's device and looks at the target there.

        Args:
            n: chains N, >= 1.
            generator: of the random numbers.
            dtype: floating-point; torch's default if None.

        Raises:
            TypeError, ValueError: a wrong argument, or what `CountedTarget.check` finds.
        """
        whole("n", n)
        _check_generator(generator)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(f"dtype: got {dtype!r}, wants a floating-point torch.dtype")
        state = self._start(n, generator, dtype)
        grads, logps = self.target.n_grad, self.target.n_logp
        self.target.check(state.x)
        return replace(
            state,
            n_grad=state.n_grad + self.target.n_grad - grads,
            n_logp=state.n_logp + self.target.n_logp - logps,
        )

    def step(self, generator: torch.Generator, state: State) -> tuple[State, StepInfo]:
        """One step of all chains; the state given is left as it was.

        Chains that are no longer finite are parked at the origin, so that they cannot disturb
        the target's code, and stay marked in `alive`.

        Args:
            generator: of the random numbers, on the state's device.
            state: from `init` or `step`, with steps left.

        Raises:
            TooManyDead: more than 1 % of the chains left the numbers.
            TypeError: an argument of another kind.
            ValueError: no step is left, or the generator is on another device.
        """
        if not isinstance(state, State):
            raise TypeError(f"state: got {type(state).__name__}, wants one from init or step")
        _check_generator(generator)
        if state.step >= self.n_steps:
            raise ValueError(f"state: got one after {state.step} steps, wants one with steps left")
        if generator.device != state.x.device:
            raise ValueError(
                f"generator: got one on {generator.device}, wants it on {state.x.device}"
            )
        with torch.no_grad():
            new = self._advance(generator, state)
            if new.step % LOOK_EVERY == 0 or new.step == self.n_steps:
                new = self._look(new)
        return new, StepInfo(self.lambdas[state.step], new.n_grad - state.n_grad)

    def _look(self, state: State) -> State:
        tensors = [t for t in (state.x, state.v, state.y, state.gradient) if t is not None]
        finite = torch.stack([t.sum(-1) for t in tensors]).isfinite().all(0)
        alive = state.alive & finite
        dead = len(alive) - int(alive.sum())
        if dead > MOST_DEAD * len(alive):
            raise TooManyDead(
                f"step_size: {dead} of {len(alive)} chains are no longer finite after "
                f"{state.step} of {self.n_steps} steps; wants a smaller step_size / eps or more "
                "srock_stages (see stability_number), fast_scale='target' or a larger lambda_delta "
                "where the target is stiff, or float64 where the score overflows"
            )
        if not dead:
            return state
        parked = [
            None if t is None else torch.where(alive[:, None], t, 0.0)
            for t in (state.x, state.v, state.y, state.gradient)
        ]
        x, v, y, gradient = parked
        assert x is not None
        return replace(state, x=x, v=v, y=y, gradient=gradient, alive=alive)

    def sample(
        self,
        num_samples: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        callback: Callable[[State, StepInfo], Any] | None = None,
        return_path: bool = False,
    ) -> SampleResult:
        """Draws `num_samples` samples, one of each chain.

        After `load_state_dict` it goes on from there, and gives bitwise what the run that was
        saved would have given.

        Args:
            num_samples: chains N, >= 1.
            device: where to; the generator's, else the CPU, if None.
            dtype: floating-point; torch's default if None.
            callback: called after each step with the state and the step's `StepInfo`.
            return_path: keep up to 100 frames of the positions in the result's trace.

        Raises:
            TooManyDead: more than 1 % of the chains left the numbers.
            TypeError, ValueError: a wrong argument, a generator on another device, or another
                number of chains than in the state that was loaded.
        """
        whole("num_samples", num_samples)
        flag("return_path", return_path)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: got {type(callback).__name__}, wants a function")
        start = time.perf_counter()
        run = self._resumed
        if run is None:
            generator = self._generator(device)
            run = _Running(self.init(num_samples, generator, dtype=dtype), generator, [], [])
        elif len(run.state.x) != num_samples:
            raise ValueError(
                f"num_samples: got {num_samples}, wants {len(run.state.x)}, the chains of the run "
                "that is resumed"
            )
        elif dtype not in (None, run.state.x.dtype):
            raise ValueError(f"dtype: got {dtype}, wants {run.state.x.dtype}, that of the run")
        self._running, self._resumed = run, None
        frames = _frames(self.n_steps) if return_path else set()
        while True:
            if run.state.step in frames:
                run.path.append(run.state.x)
                run.path_steps.append(run.state.step)
            if run.state.step == self.n_steps:
                break
            run.state, info = self.step(run.generator, run.state)
            if callback is not None:
                callback(run.state, info)
        self._running = None
        state = run.state
        trace = {"lambda": torch.tensor(self.lambdas, dtype=torch.float64)}
        if return_path:
            trace["path"] = torch.stack(run.path)
            trace["path_steps"] = torch.tensor(run.path_steps)
        samples = torch.where(state.alive[:, None], state.x, torch.nan)
        if samples.is_cuda:
            torch.cuda.synchronize(samples.device)
        seconds = time.perf_counter() - start
        return SampleResult(samples, state.n_grad, state.n_logp, seconds, state.alive, trace)

    def _generator(self, device: torch.device | str | None) -> torch.Generator:
        if self.generator is None:
            try:
                generator = torch.Generator("cpu" if device is None else device)
            except (RuntimeError, TypeError) as error:
                got = f"device: got {device!r}, wants a device that torch has here"
                raise ValueError(got) from error
            return generator.manual_seed(int(torch.randint(2**62, ())))
        if device is not None and torch.device(device).type != self.generator.device.type:
            raise ValueError(f"generator: got one on {self.generator.device}, wants it on {device}")
        return self.generator

    def state_dict(self) -> dict[str, Any]:
        """All that `sample` needs to go on; for its callback, or after it was broken off.

        Returns:
            Tensors and numbers alone, which torch.save writes and torch.load reads with
            weights_only.

        Raises:
            RuntimeError: no run has begun and not ended.
        """
        if self._running is None:
            raise RuntimeError("state_dict: got no run, wants one that has begun and not ended")
        run = self._running
        return {
            **vars(run.state),
            "generator": run.generator.get_state(),
            "device": str(run.generator.device),
            "path": list(run.path),
            "path_steps": list(run.path_steps),
            "settings": self._settings(),
        }

    def _settings(self) -> dict[str, Any]:
        """What a run must have been begun with for this sampler to go on with it."""
        kept = {
            name: value
            for name, value in vars(self).items()
            if not name.startswith("_")
            and (isinstance(value, str | int | float) or type(value) is tuple)
        }
        del kept["compile"]  # the same draws but for rounding
        base = repr(getattr(self, "base", None))
        return {"class": type(self).__name__, **kept, "base": base, "lambdas": list(self.lambdas)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next `sample` go on where `state_dict` was called.

        Args:
            state: of a sampler with the same arguments. The generator of this sampler, if it
                was given one, is set to the state saved.

        Raises:
            TypeError: it is no dictionary.
            ValueError: it has other keys, or is of a sampler with other arguments. Of another
                target of the same dimension it cannot tell.
        """
        wants = {
            *State.__dataclass_fields__,
            *("generator", "device", "path", "path_steps", "settings"),
        }
        if not isinstance(state, Mapping):
            raise TypeError(f"state: got {type(state).__name__}, wants what state_dict() gave")
        if set(state) != wants:
            raise ValueError(f"state: got the keys {sorted(state)}, wants {sorted(wants)}")
        for name, value in self._settings().items():
            saved = state["settings"].get(name)
            if saved != value:
                raise ValueError(
                    f"state: is of a run with {name} {_short(saved)}, wants {_short(value)}"
                )
        generator = self._generator(state["device"])
        generator.set_state(state["generator"])
        fields = {name: state[name] for name in State.__dataclass_fields__}
        path, steps = list(state["path"]), list(state["path_steps"])
        self._resumed = _Running(State(**fields), generator, path, steps)


@dataclass
class _Running:
    """A call of `sample` that has begun."""

    state: State
    generator: torch.Generator
    path: list[Tensor]
    path_steps: list[int]


def _check_generator(generator: object) -> None:
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator: got {type(generator).__name__}, wants a torch.Generator")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:56]} ..."


def _frames(n_steps: int) -> set[int]:
    count = min(n_steps, PATH_FRAMES - 1)
    return {round(i * n_steps / count) for i in range(count + 1)}
