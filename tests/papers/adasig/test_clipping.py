"""Weights of the norm: their values, limits and bounds."""

from __future__ import annotations

import math
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from assay.papers.adasig import (  # noqa: E402
    adasig_slope_weight,
    adasig_weight,
    auto_s_weight,
    auto_v_weight,
    flat_weight,
    nsgd_weight,
    per_sample_norms,
    psac_weight,
    sensitivity,
)
from assay.papers.adasig.clipping import ROUNDING  # noqa: E402

WEIGHTS = {
    "adasig": partial(adasig_weight, slope=3.0),
    "flat": flat_weight,
    "auto_s": auto_s_weight,
    "auto_v": auto_v_weight,
    "psac": psac_weight,
    "nsgd": partial(nsgd_weight, r=0.5),
}
SLOPES = st.floats(-6, 6).map(lambda e: 10.0**e)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
# From subnormal to the largest of the dtype, also all equal, which sums worst.
GRADIENTS = st.tuples(
    DTYPES,
    st.integers(1, 3000),
    st.floats(-45, 38),
    st.integers(0, 2**31),
    st.booleans(),
).map(lambda given: _gradient(*given))


def _gradient(dtype, d, exponent, seed, equal):
    generator = torch.Generator().manual_seed(seed)
    raw = torch.ones(d) if equal else torch.randn(d, generator=generator)
    scaled = raw.double() * 10.0**exponent * (1 + torch.rand(1, generator=generator).item())
    limit = torch.finfo(dtype).max
    return scaled.clamp(-limit, limit).to(dtype)


def _clipped_norm(weight, gradient):
    """Norm of weight * gradient as the optimizers multiply: in float32."""
    factor = weight.clamp(max=torch.finfo(torch.float32).max).float()
    return (factor * gradient.float()).double().norm().item()


def test_values_of_the_sigmoid():
    norms = torch.tensor([0.1, 1.0], dtype=torch.float64)
    clipped = adasig_weight(norms, 8.0, 0.1) * norms
    assert clipped.tolist() == pytest.approx([0.1 * math.tanh(0.4), 0.1 * math.tanh(4)], rel=1e-14)
    assert clipped.tolist() == pytest.approx([0.0379949, 0.0999329], abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_zero_and_huge_norms(dtype):
    norms = torch.tensor([0.0, 6e4], dtype=dtype)
    weights = adasig_weight(norms, 3.0, 0.5)
    assert weights.dtype == torch.promote_types(dtype, torch.float32)
    assert weights.tolist() == pytest.approx([0.75, 0.5 / float(norms[1])], rel=1e-6)
    assert adasig_slope_weight(norms, 3.0).tolist() == [0.5, 0.0]
    huge = torch.tensor([1e30])
    assert adasig_weight(huge, 1e6).item() == pytest.approx(1e-30, rel=1e-6)
    assert adasig_slope_weight(huge, 1e6).item() == 0


def test_the_limit_is_approached_smoothly():
    norms = torch.logspace(-44, -3, 200, dtype=torch.float64).float()
    norms = norms[norms > 0]
    assert torch.allclose(adasig_weight(norms, 2.0), torch.ones_like(norms), rtol=1e-5)


@given(SLOPES)
@settings(deadline=None)
def test_weights_do_not_increase_with_the_norm(slope):
    norms = torch.logspace(-8, 8, 4000, dtype=torch.float64) / slope
    for weights in (adasig_weight(norms, slope), adasig_slope_weight(norms, slope)):
        assert (weights.diff() <= 1e-12 * weights[:-1]).all()
    assert (
        adasig_weight(norms, slope) * (1 + 1e-9) >= slope * adasig_slope_weight(norms, slope)
    ).all()


def test_the_slope_weight_is_the_derivative_by_the_slope():
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(7, dtype=torch.float64, generator=generator)
    for alpha in (0.01, 0.5, 1.0, 2.0):  # steeper, autograd's 1 - tanh^2 loses digits
        slope = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        x = gradient.norm()

        def clipped(slope, x=x):
            return torch.tanh(slope * x / 2) / x * gradient

        (derivative,) = torch.autograd.functional.jacobian(clipped, (slope,))
        ours = adasig_slope_weight(x[None], alpha) * gradient
        assert torch.allclose(ours, derivative, rtol=1e-10, atol=0)
        assert torch.autograd.gradcheck(clipped, slope)
        assert torch.allclose(adasig_weight(x[None], alpha) * gradient, clipped(slope), rtol=1e-12)


def test_a_steep_sigmoid_normalises_and_a_flat_one_keeps_directions():
    norms = torch.logspace(-3, 3, 50, dtype=torch.float64)
    assert torch.allclose(adasig_weight(norms, 1e6), auto_v_weight(norms), rtol=1e-6)
    gradients = torch.randn(50, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = adasig_weight(gradients.norm(dim=1), 1e-4)
    cosine = torch.cosine_similarity(weights @ gradients, gradients.sum(0), dim=0)
    assert cosine > 1 - 1e-6


def test_baselines_by_their_formulas():
    norms = torch.tensor([0.0, 0.05, 0.5, 20.0], dtype=torch.float64)
    x = norms.tolist()
    assert flat_weight(norms, 0.1).tolist() == pytest.approx([1, 1, 0.2, 0.005])
    assert auto_s_weight(norms, 0.1).tolist() == pytest.approx([0.1 / (v + 0.01) for v in x])
    assert nsgd_weight(norms, 2.0, r=0.7).tolist() == pytest.approx([2 / (v + 0.7) for v in x])
    assert auto_v_weight(norms, 0.1).tolist() == pytest.approx([0, 2, 0.2, 0.005])
    assert psac_weight(norms, 0.1).tolist() == pytest.approx(
        [0.1 / (v + 0.1 / (v + 0.1)) for v in x]
    )


@given(GRADIENTS, SLOPES)
@settings(deadline=None, max_examples=300)
def test_no_clipped_gradient_is_over_its_bound(gradient, slope):
    norms = per_sample_norms([gradient[None]])
    assert _clipped_norm(adasig_weight(norms, slope), gradient) <= 1
    assert _clipped_norm(adasig_slope_weight(norms, slope), gradient) <= sensitivity(slope)
    for weight in WEIGHTS.values():
        assert _clipped_norm(weight(norms), gradient) <= 1


@given(GRADIENTS)
@settings(deadline=None)
def test_norms_are_rounded_up_and_hardly(gradient):
    exact = gradient.double().norm().item()
    found = per_sample_norms([gradient[None]]).item()
    if exact > 1e-15:  # below, squares are lost, but such a gradient is far from its bound
        assert exact <= found <= exact * (1 + 2 * ROUNDING)


def test_norms_hold_where_float32_sums_are_wrong():
    gradient = torch.full((1, 500_000), 0.1)
    exact = gradient.double().norm().item()
    assert abs(gradient.norm(dim=1).item() / exact - 1) > 1e-4
    assert exact <= per_sample_norms([gradient]).item() <= exact * (1 + 2 * ROUNDING)


def test_norms_over_all_parameters():
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 3, 100), (5,), (5, 256), (5, 2, 2, 300), (5, 1)]
    parts = [torch.randn(shape, generator=generator) for shape in shapes]
    exact = torch.cat([part.reshape(5, -1) for part in parts], dim=1).double().norm(dim=1)
    assert torch.allclose(per_sample_norms(parts), exact, rtol=2 * ROUNDING)
    assert per_sample_norms([part[:0] for part in parts]).shape == (0,)
    parts[1][2] = math.inf
    parts[2][3, 7] = math.nan
    assert per_sample_norms(parts).isfinite().tolist() == [True, True, False, False, True]


@pytest.mark.parametrize("name", WEIGHTS)
def test_bad_arguments(name):
    weight = WEIGHTS[name]
    norms = torch.ones(2)
    with pytest.raises(TypeError, match=r"norms: got"):
        weight([1.0])
    for bound in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"max_grad_norm: got {bound}, wants a finite"):
            weight(norms, max_grad_norm=bound)
    with pytest.raises(TypeError, match=r"max_grad_norm: got \[1.0\], wants one number > 0"):
        weight(norms, max_grad_norm=[1.0])


def test_bad_slopes_and_regularisers():
    norms = torch.ones(2)
    for weight in (adasig_weight, adasig_slope_weight):
        with pytest.raises(ValueError, match=r"slope: got 0.0, wants a finite number > 0"):
            weight(norms, 0.0)
    for regularised in (auto_s_weight, nsgd_weight, psac_weight):
        with pytest.raises(ValueError, match=r"r: got -0.1, wants a finite number > 0"):
            regularised(norms, r=-0.1)


@pytest.mark.parametrize("samples", [[], [2, 3]])
def test_gradients_of_other_batches_have_no_norms(samples):
    gradients = [torch.ones(b, 4) for b in samples]
    with pytest.raises(ValueError, match=rf"grad_samples: got tensors of \[{str(samples)[1:-1]}\]"):
        per_sample_norms(gradients)
