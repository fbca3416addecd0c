"""The targets' log-densities in jax, for the samplers of blackjax."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any

from assay.papers.multalmc.targets import (
    DoubleWell,
    Funnel,
    GaussianMixture,
    LogisticRegression,
    PhiFour,
    Rings,
    StudentMixture,
)


@singledispatch
def jax_log_prob(target: Any) -> Callable[[Any], Any]:
    """The log-density of one point, ``(d,)`` to a number, written in jax.

    Args:
        target: One of `assay.papers.multalmc.targets`, or any object with a method `jax_log_prob`,
            which is then used.

    Raises:
        TypeError: There is no such twin of the target.
    """
    own = getattr(target, "jax_log_prob", None)
    if own is None:
        raise TypeError(
            f"target: got {type(target).__name__}, wants one of assay.papers.multalmc.targets or "
            "an object with a method jax_log_prob, from (d,) to a number"
        )
    return own


@jax_log_prob.register
def _(target: GaussianMixture) -> Callable[[Any], Any]:
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    means, variances = jnp.asarray(target.means.numpy()), jnp.asarray(target.variances.numpy())
    assert target.mode_weights is not None
    offsets = jnp.log(jnp.asarray(target.mode_weights.numpy()))
    offsets = offsets - 0.5 * target.dim * jnp.log(2 * math.pi * variances)

    def log_prob(x: Any) -> Any:
        return logsumexp(offsets - 0.5 * ((x - means) ** 2).sum(-1) / variances)

    return log_prob


@jax_log_prob.register
def _(target: StudentMixture) -> Callable[[Any], Any]:
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    means, df = jnp.asarray(target.means.numpy()), target.df
    power = 0.5 * (df + target.dim)
    constant = math.lgamma(power) - math.lgamma(df / 2) - 0.5 * target.dim * math.log(math.pi * df)
    assert target.mode_weights is not None
    offsets = constant + jnp.log(jnp.asarray(target.mode_weights.numpy()))

    def log_prob(x: Any) -> Any:
        return logsumexp(offsets - power * jnp.log1p(((x - means) ** 2).sum(-1) / df))

    return log_prob


@jax_log_prob.register
def _(target: Rings) -> Callable[[Any], Any]:
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    radii, width = jnp.asarray(target.radii.numpy()), target.width
    constant = 1.5 * math.log(2 * math.pi) + math.log(width * len(radii))

    def log_prob(x: Any) -> Any:
        square = (x**2).sum()
        logits = -0.5 * ((jnp.sqrt(square) - radii) / width) ** 2
        return logsumexp(logits) - 0.5 * jnp.log(square) - constant

    return log_prob


@jax_log_prob.register
def _(target: Funnel) -> Callable[[Any], Any]:
    import jax.numpy as jnp

    dim, variance = target.dim, target.variance
    constant = dim * math.log(2 * math.pi) + math.log(variance)

    def log_prob(x: Any) -> Any:
        quadratic = x[0] ** 2 / variance + (x[1:] ** 2).sum() * jnp.exp(-x[0])
        return -0.5 * (quadratic + (dim - 1) * x[0] + constant)

    return log_prob


@jax_log_prob.register
def _(target: DoubleWell) -> Callable[[Any], Any]:
    wells, delta = target.wells, target.delta

    def log_prob(x: Any) -> Any:
        return -((x[:wells] ** 2 - delta) ** 2).sum() - 0.5 * (x[wells:] ** 2).sum()

    return log_prob


@jax_log_prob.register
def _(target: PhiFour) -> Callable[[Any], Any]:
    import jax.numpy as jnp

    coupling, site = target.beta * target.a * target.dim, target.beta / (target.a * target.dim)
    h = target.h

    def log_prob(x: Any) -> Any:
        bonds = 0.5 * coupling * (jnp.diff(jnp.pad(x, 1)) ** 2).sum()
        return -bonds - site * ((1 - x**2) ** 2 / 4 + h * x).sum()

    return log_prob


@jax_log_prob.register
def _(target: LogisticRegression) -> Callable[[Any], Any]:
    import jax
    import jax.numpy as jnp

    design, labels = jnp.asarray(target.design.numpy()), jnp.asarray(target.labels.numpy())
    precision = target.prior_scale**-2

    def log_prob(x: Any) -> Any:
        logits = design @ x
        likelihood = (labels * logits - jax.nn.softplus(logits)).sum()
        return likelihood - 0.5 * precision * (x**2).sum()

    return log_prob
