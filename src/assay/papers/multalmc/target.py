"""Targets pi ~ exp(-V) of R^d, known up to a constant, and what is accepted as one.

Everything is batched: x is (N, d), a log-density (N,), a score grad log pi = -grad V (N, d).
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.fx.experimental.proxy_tensor import make_fx

from assay.toolkits.checks import whole

LogDensity = Callable[[Tensor], Tensor]


@runtime_checkable
class Target(Protocol):
    """What a sampler needs to know of a distribution.

    A method `score(x)`, (N, d) to (N, d), is used where there is one; else automatic
    differentiation of `log_prob`, at about twice the cost. Values of another shape are refused
    with a ValueError when a run begins.
    """

    dim: int

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density up to a constant, (N, d) to (N,). Not the potential, its negative."""
        ...


class CountedTarget:
    """A target whose evaluations are counted.

    Attributes:
        dim: d.
        n_grad: batches whose score was evaluated, which is gradients per chain.
        n_logp: batches whose log-density alone was evaluated.
    """

    def __init__(self, target: Any, dim: int) -> None:
        self.inner = target
        self.dim = dim
        self.n_grad = 0
        self.n_logp = 0
        self._log_prob: LogDensity = getattr(target, "log_prob", target)
        self._score: Callable[[Tensor], Tensor] = getattr(target, "score", self._differentiate)

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density up to a constant, (N, d) to (N,)."""
        if not torch.compiler.is_compiling():
            self.n_logp += 1
        return self._log_prob(x)

    def score(self, x: Tensor) -> Tensor:
        """grad log pi, (N, d) to (N, d)."""
        if not torch.compiler.is_compiling():
            self.n_grad += 1
        return self._score(x)

    def _differentiate(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # which cannot trace autograd.grad
            return torch.func.grad(lambda x: self._log_prob(x).sum())(x)
        if torch.is_inference_mode_enabled():
            # Which forbids what is asked for here, and a clone leaves it behind.
            with torch.inference_mode(False):
                return self._differentiate(x.clone())
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self._log_prob(x).sum(), x)
        return gradient

    @torch.no_grad()
    def check(self, x: Tensor) -> None:
        """Evaluates both once and says what is wrong with them.

        Args:
            x: points where the density should be finite, (N, d).

        Raises:
            TypeError: something else than floating-point tensors comes back.
            ValueError: a wrong shape, dtype or device, no finite value anywhere, or a density
                that is flat everywhere.

        Warns:
            UserWarning: what runs but gives wrong draws. Some log-densities are not finite; the
                score is not the gradient of `log_prob`; it is another one for the same point
                among other points; far from the origin it points outward, as that of exp(+V) does.
        """
        n, d = x.shape
        values = self.log_prob(x)
        _check_values("log_prob", values, (n,), x)
        lost = n - int(values.isfinite().sum())
        if lost:
            _warn(
                f"log_prob is not finite at {lost} of {n} draws of the base; where a support ends "
                "the score does not tell: transform the target to all of R^d"
            )
        try:
            gradient = self.score(x)
        except RuntimeError as error:
            if not any(words in str(error) for words in _NO_GRADIENT):
                raise
            raise ValueError(
                "target: got a log-density that torch cannot differentiate, wants torch operations"
                " from x to the result, or a target with a method score"
            ) from error
        _check_values("score", gradient, (n, d), x)
        if self._score != self._differentiate:
            self._check_score(x[:8], gradient[:8])
        self._check_tails(x, gradient)

    def _check_score(self, x: Tensor, gradient: Tensor) -> None:
        size = gradient.norm(dim=1)
        step = 0.01 * gradient / size[:, None]
        ahead, behind = self.log_prob(torch.cat([x + step, x - step])).chunk(2)
        # Nothing is said of what rounding may explain: x may be in single precision.
        clear = 0.02 * size > 100 * torch.finfo(x.dtype).eps * (1 + ahead.abs())
        ratio = ((ahead - behind) / (0.02 * size))[clear]
        if len(ratio) and not 0.5 < float(ratio.median()) < 2:
            _warn(
                "its score is not the gradient of its log_prob, which rises along it "
                f"{float(ratio.median()):.2g} times as fast as it says; draws follow the score"
            )

    def _check_tails(self, x: Tensor, gradient: Tensor) -> None:
        # Far enough for the tails to decide wherever the mass lies; a majority, as one point of
        # a funnel's neck outweighs all others.
        far = 1000 * x[:32]
        far = torch.cat([far, -far])
        score, again = self.score(torch.cat([far, x[:8]])).split([len(far), len(x[:8])])
        if not (score.any() or gradient.any()):
            raise ValueError("target: got a score of 0 everywhere, wants a log-density of x")
        change, size = (again - gradient[:8]).norm(dim=1), gradient[:8].norm(dim=1)
        if (change > 0.01 * size).sum() > len(size) / 2:
            _warn(
                "its score at a point changes with the other points of the batch, or by chance; "
                "it wants each row of x by itself, and modules in eval mode"
            )
        inward = (score * far).sum(-1)
        inward = inward[inward.isfinite()]
        if (inward > 0).sum() > len(inward) / 2:
            _warn(
                "its score points away from the origin on far points, as if the sign of "
                "log_prob were wrong; it wants log pi = -V, not the potential V"
            )


_NO_GRADIENT = ("does not require grad", "not have been used in the graph")


def _warn(what: str) -> None:
    warnings.warn(f"target: {what}", stacklevel=5)


def _check_values(name: str, values: Any, shape: tuple[int, ...], x: Tensor) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"target.{name}: got {type(values).__name__}, wants a tensor")
    if tuple(values.shape) != shape:
        raise ValueError(
            f"target.{name}: got shape {tuple(values.shape)}, wants {shape} for x of shape "
            f"{tuple(x.shape)}"
        )
    if values.dtype != x.dtype or values.device != x.device:
        raise ValueError(
            f"target.{name}: got {values.dtype} on {values.device}, wants x's {x.dtype} on "
            f"{x.device}; say dtype= and device= where the target's constants have others"
        )
    if not values.isfinite().any():
        raise ValueError(f"target.{name}: got no finite value at {len(x)} draws of the base")


def as_target(x: Any, dim: int | None = None) -> CountedTarget:
    """Anything that is accepted as a target, with its evaluations counted from zero.

    Args:
        x: an object with `dim` and `log_prob` (and perhaps `score`), a torch distribution over
            vectors of R^d, or a function from (N, d) to log-densities (N,). For a potential of
            Pyro see `from_pyro_potential`.
        dim: d; needed for a function alone, else it must agree.

    Raises:
        TypeError: it is none of these.
        ValueError: no or another `dim`, a distribution of batches, or one that does not live on
            all of R^d.
    """
    if isinstance(x, CountedTarget):
        x, dim = x.inner, x.dim if dim is None else dim
    if isinstance(x, Distribution):
        x = _TorchDistribution(x)
    if not callable(getattr(x, "log_prob", x)):
        raise TypeError(
            f"target: got {type(x).__name__}, wants an object with dim and log_prob, a torch "
            "distribution, or a function from (N, d) to (N,)"
        )
    own = getattr(x, "dim", None)
    if callable(own):  # of a tensor or a module, something else
        own = None
    if own is None and dim is None:
        raise ValueError("dim: got None, wants the dimension of the target's x")
    if own is not None and dim is not None and own != dim:
        raise ValueError(f"dim: got {dim}, wants the target's own, {own}")
    return CountedTarget(x, whole("dim", own if dim is None else dim))


class _TorchDistribution:
    def __init__(self, distribution: Distribution) -> None:
        batch, event = tuple(distribution.batch_shape), tuple(distribution.event_shape)
        if batch or len(event) != 1:
            raise ValueError(
                f"target: got a distribution of batch shape {batch} and event shape {event}, "
                "wants () and (d,); torch.distributions.Independent turns one into the other"
            )
        support: Any = distribution.support
        while hasattr(support, "base_constraint"):  # of Independent, of mixtures
            support = support.base_constraint
        if support not in (constraints.real, constraints.real_vector):
            raise ValueError(
                f"target: got the support {support}, wants all of R^d; transform it, with "
                "torch.distributions.transform_to and the log-determinant"
            )
        self.dim = event[0]
        self._distribution = _unvalidated(distribution)

    def log_prob(self, x: Tensor) -> Tensor:
        return self._distribution.log_prob(x)


def _unvalidated(distribution: Distribution) -> Distribution:
    """A copy that does not raise where one chain of many has left the numbers."""
    twin = copy.copy(distribution)
    twin._validate_args = False
    for name, value in vars(twin).items():
        if isinstance(value, Distribution):
            setattr(twin, name, _unvalidated(value))
    return twin


def from_pyro_potential(
    potential_fn: Callable[[dict[str, Tensor]], Tensor], prototype: Mapping[str, Tensor]
) -> CountedTarget:
    """The target of a Pyro model, from `pyro.infer.mcmc.util.initialize_model`.

    x holds the unconstrained parameters one after another, in the prototype's order.

    Args:
        potential_fn: V, from a dictionary of unconstrained parameters to a scalar. It is recorded
            once, at the prototype, so that it may not branch on values, and mapped over batches.
        prototype: such a dictionary, of one point.

    Raises:
        TypeError: `potential_fn` is no function or `prototype` no dictionary of tensors.
        ValueError: `prototype` is empty.
    """
    if not callable(potential_fn):
        raise TypeError(f"potential_fn: got {type(potential_fn).__name__}, wants a function")
    if not isinstance(prototype, Mapping) or not all(
        isinstance(value, Tensor) for value in prototype.values()
    ):
        raise TypeError("prototype: got something else, wants a dictionary of tensors")
    if not prototype:
        raise ValueError("prototype: got an empty dictionary, wants the model's parameters")
    target = _PyroPotential(potential_fn, prototype)
    return CountedTarget(target, target.dim)


class _PyroPotential:
    def __init__(
        self, potential_fn: Callable[[dict[str, Tensor]], Tensor], prototype: Mapping[str, Tensor]
    ) -> None:
        self._shapes = {name: value.shape for name, value in prototype.items()}
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        self.dim = sum(self._sizes)
        # Pyro's handlers cannot run under vmap; the operations that they record can. Validation
        # branches on values, which cannot be recorded.
        pyro = sys.modules.get("pyro")
        flat = torch.cat([value.detach().reshape(-1) for value in prototype.values()])
        with pyro.validation_enabled(False) if pyro else nullcontext():
            graph = make_fx(lambda x: potential_fn(self.unravel(x)).reshape(()))(flat)
        self._potential = torch.func.vmap(graph)

    def unravel(self, x: Tensor) -> dict[str, Tensor]:
        """The model's parameters of points x, (..., d)."""
        parts = x.split(self._sizes, dim=-1)
        return {
            name: part.reshape((*x.shape[:-1], *shape))
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def log_prob(self, x: Tensor) -> Tensor:
        return -self._potential(x)
