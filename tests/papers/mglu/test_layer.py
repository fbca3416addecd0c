"""The trainable layer against its definition."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from assay.papers.mglu import MGLU, MaskedLinear, SwiMGLU
from assay.papers.mglu.layer import route
from assay.papers.mglu.reference import mglu_terms, straight_through


def data(n=3, h=13, d=7, batch=(2, 5), dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    return (
        torch.randn(*batch, h, generator=g, dtype=dtype),
        torch.randn(d, h, generator=g, dtype=dtype),
        torch.randn(n, d, h, generator=g, dtype=dtype),
    )


def layer(n=3, h=13, d=7, **options):
    torch.manual_seed(1)
    return MGLU(h, d, n, mask_init_std=1.0, **{"dtype": torch.float64, **options})


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_gate_and_value_add_up_to_the_whole_product(dtype, tolerance):
    x, weight, logits = data(dtype=dtype)
    projection = MaskedLinear(13, 7, 3, dtype=dtype)
    with torch.no_grad():
        projection.weight.copy_(weight)
        projection.mask_logits.copy_(logits)
    gate, value = projection(x)
    assert gate.shape == value.shape == (3, 2, 5, 7)
    whole = F.linear(x, weight)
    assert ((gate + value - whole).abs().max() / whole.abs().max()).item() < tolerance
    by_hand = torch.stack([F.linear(x, weight * mask) for mask in projection.hard_masks()])
    torch.testing.assert_close(gate, by_hand)


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 13, 7), (5, 8, 3)])
def test_fast_and_reference_agree_forward_and_backward(activation, shape):
    n, h, d = shape
    x, _, _ = data(h=h)
    outcomes = []
    for implementation in ("fast", "reference"):
        block = layer(n, h, d, activation=activation, implementation=implementation)
        given = x.clone().requires_grad_()
        block(given).square().sum().backward()
        grads = [given.grad, block.weight.grad, block.mask_logits.grad, block.down_proj.weight.grad]
        outcomes.append([block(x), *grads])
    for fast, reference in zip(*outcomes, strict=True):
        torch.testing.assert_close(fast, reference, rtol=1e-9, atol=1e-11)


def test_straight_through_gradient_is_that_of_a_real_mask():
    x, weight, logits = data()
    logits.requires_grad_()
    mglu_terms(x, weight, logits, F.silu).sum().backward()

    relaxed = (logits > 0).to(weight.dtype).requires_grad_()
    gate = torch.einsum("bsh,ndh->nbsd", x, relaxed * weight)
    value = torch.einsum("bsh,ndh->nbsd", x, (1 - relaxed) * weight)
    (F.silu(gate) * value).sum().backward()
    torch.testing.assert_close(logits.grad, relaxed.grad)


def test_straight_through_gradient_is_the_weight_times_the_difference():
    x, weight, logits = data(n=1, batch=(4,))
    block = MGLU(13, 7, 1, dtype=torch.float64)
    with torch.no_grad():
        block.weight.copy_(weight)
        block.mask_logits.copy_(logits)
    gate, value = block.project(x)
    gate.retain_grad()
    value.retain_grad()
    (F.silu(gate) * value).sum().backward()
    mask = block.hard_masks()[0].to(torch.float64)
    g, v = F.linear(x, mask * weight), F.linear(x, (1 - mask) * weight)
    sigmoid = torch.sigmoid(g)
    d_gate = v * sigmoid * (1 + g * (1 - sigmoid))
    d_value = F.silu(g)
    torch.testing.assert_close(block.mask_logits.grad[0], weight * ((d_gate - d_value).T @ x))
    torch.testing.assert_close(
        block.weight.grad, mask * (d_gate.T @ x) + (1 - mask) * (d_value.T @ x)
    )


def test_gradients_of_input_and_weight_by_finite_differences():
    x, _, _ = data(batch=(3,))
    block = layer(2)
    block.mask_logits.requires_grad_(False)

    def call(x, weight):
        return torch.func.functional_call(block, {"weight": weight}, (x,))

    weight = block.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(call, (x.requires_grad_(), weight))


def test_a_zero_logit_is_a_zero_bit():
    assert straight_through(torch.tensor([-1.0, 0.0, 1e-30])).tolist() == [0, 0, 1]
    projection = MaskedLinear(2, 1, 1)
    with torch.no_grad():
        projection.mask_logits.copy_(torch.tensor([[[0.0, 0.5]]]))
    assert projection.hard_masks().tolist() == [[[False, True]]]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
def test_masks_of_all_ones_or_all_zeros_output_zero_and_are_reported(sign, activation):
    block = layer(1, activation=activation)
    with torch.no_grad():
        block.mask_logits.fill_(sign)
    assert block(data()[0]).abs().max().item() < 1e-12
    with pytest.warns(UserWarning, match="100.0% of the mask rows"):
        stats = block.mask_stats()
    assert stats.dead_rows == 1
    assert stats.density == ((1.0,) if sign > 0 else (0.0,))


def test_equal_masks_add_up():
    one, three = layer(1), layer(3)
    three.load_state_dict({**one.state_dict(), "mask_logits": one.mask_logits.expand(3, -1, -1)})
    x = data()[0]
    torch.testing.assert_close(three(x), 3 * one(x))


def test_a_bilinear_gate_does_not_see_which_half_is_masked():
    x, weight, logits = data()
    a = mglu_terms(x, weight, logits, lambda v: v)
    b = mglu_terms(x, weight, -logits, lambda v: v)
    torch.testing.assert_close(a, b)


def test_flip_rate_counts_since_the_last_call():
    block = layer(2)
    assert all(map(math.isnan, block.mask_stats().flip_rate))
    with torch.no_grad():
        block.mask_logits[0, :, :6] *= -1
    flipped = block.mask_stats().flip_rate
    assert flipped == pytest.approx((6 / 13, 0))
    assert block.mask_stats().flip_rate == (0, 0)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_routing_weighs_the_largest_logits_by_their_softmax(top_k):
    x, _, _ = data(batch=(4,))
    block = layer(3, top_k=top_k)
    terms = mglu_terms(x, block.weight, block.mask_logits, F.silu)
    wanted = torch.zeros(4, 7, dtype=torch.float64)
    for token, logits in enumerate(block.router(x)):
        best = logits.argsort(descending=True)[:top_k]
        for share, i in zip(logits[best].softmax(0), best, strict=True):
            wanted[token] += share * terms[i, token]
    torch.testing.assert_close(block(x), block.down_proj(wanted))
    block(x).sum().backward()
    assert block.router.weight.grad is not None


def test_routing_takes_a_softmax_in_another_dtype():
    class AutocastOfGPUs(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out.float() if func is torch.Tensor.softmax else out

    logits = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.bfloat16)
    with AutocastOfGPUs():
        weights = route(logits, 2)
    assert weights.dtype == torch.bfloat16
    assert torch.equal(weights, route(logits, 2))


def test_logits_stay_in_fp32_under_half_weights():
    block = SwiMGLU(8, 4, 2, dtype=torch.bfloat16)
    assert block.weight.dtype == torch.bfloat16
    assert block.mask_logits.dtype == torch.float32
    converted = SwiMGLU(8, 4, 2)
    before = converted.mask_logits.detach().clone()
    converted.to(torch.bfloat16)
    assert converted.weight.dtype == converted.down_proj.weight.dtype == torch.bfloat16
    assert torch.equal(converted.mask_logits, before)
    out = converted(torch.randn(3, 8, dtype=torch.bfloat16))
    out.float().sum().backward()
    assert out.dtype == torch.bfloat16
    assert converted.mask_logits.grad.dtype == torch.float32
    converted.to(torch.bfloat16)
    assert converted.mask_logits.grad.dtype == torch.float32
    torch.optim.AdamW(converted.parameters()).step()


def test_state_dict_names():
    assert list(SwiMGLU(4, 3, 2).state_dict()) == ["weight", "mask_logits", "down_proj.weight"]


def test_a_few_steps_of_training_lower_the_loss_and_move_masks():
    torch.manual_seed(0)
    block = SwiMGLU(16, 32, 2)
    x, y = torch.randn(64, 16), torch.randn(64, 16)
    optimizer = torch.optim.AdamW(block.parameters(), lr=1e-2)
    block.mask_stats()
    losses = []
    for _ in range(60):
        loss = F.mse_loss(block(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]
    assert min(block.mask_stats().flip_rate) > 0.05


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 4), ValueError, "hidden_size: got 0"),
        ((4, -1), ValueError, "intermediate_size: got -1"),
        ((4, 2.5), TypeError, "intermediate_size: got 2.5"),
        ((4, 4, 0), ValueError, "n_masks: got 0"),
        ((4, 4, 1, "tanh"), ValueError, "activation: got 'tanh', wants one of silu, gelu, relu"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        MGLU(*arguments)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="top_k: got 3, wants 1 to n_masks = 2"):
        MGLU(4, 4, 2, top_k=3)
    with pytest.raises(ValueError, match="mask_init_std: got 0"):
        MaskedLinear(4, 4, 2, mask_init_std=0)
    with pytest.raises(ValueError, match="implementation: got 'quick'"):
        MGLU(4, 4, 2, implementation="quick")
    with pytest.raises(TypeError, match="activation: SwiMGLU is the MGLU with SiLU"):
        SwiMGLU(4, 4, activation="relu")
    for implementation in ("fast", "reference"):
        with pytest.raises(ValueError, match=r"x: got shape \(2, 5\), wants \(..., 4\)"):
            MGLU(4, 4, 2, implementation=implementation)(torch.zeros(2, 5))


@pytest.mark.parametrize("implementation", ["fast", "reference"])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.tensor(1.0), r"x: got shape \(\), wants"),
        (torch.ones(2, 8, dtype=torch.long), "x: got torch.int64, wants a floating dtype"),
        ([[1.0] * 8], "x: got list, wants a tensor"),
        (None, "x: got NoneType, wants a tensor"),
    ],
)
def test_inputs_that_are_no_activations_are_refused(x, message, implementation):
    block = MGLU(8, 6, 2, implementation=implementation)
    for module in (block, block.pack()):
        with pytest.raises((TypeError, ValueError), match=message):
            module(x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64])
def test_weights_are_floats(dtype):
    with pytest.raises(ValueError, match="dtype: got"):
        MGLU(8, 6, 2, dtype=dtype)


def test_mask_init_std_is_a_number():
    with pytest.raises(TypeError, match="mask_init_std: got 'x', wants one number > 0"):
        MGLU(8, 6, 2, mask_init_std="x")
