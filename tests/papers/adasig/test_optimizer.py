"""The optimizer against the paper's algorithm, and all that may go wrong in a training."""

from __future__ import annotations

import copy
import io
import math
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
import numpy as np  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from opacus import GradSampleModule  # noqa: E402
from opacus.optimizers.optimizer import _generate_noise  # noqa: E402
from tests.papers.adasig.training import (  # noqa: E402
    adasig,
    backward,
    batches,
    dataset,
    flat,
    generator,
    model,
    step,
)
from torch import nn  # noqa: E402

from assay.papers.adasig import (  # noqa: E402
    AdaSigDPOptimizer,
    NormWeightedDPOptimizer,
    adasig_weight,
    auto_s_weight,
    flat_weight,
    sensitivity,
    split_noise,
)
from assay.papers.adasig.optimizer import _full_precision  # noqa: E402
from assay.papers.adasig.reference import SlopeState, clipped_sums, sgd_step  # noqa: E402


@pytest.mark.parametrize("sigma", [0.0, 1.0])
@pytest.mark.parametrize("accounting", ["paper", "joint"])
@pytest.mark.parametrize("bound", [1.0, 0.3])
@pytest.mark.filterwarnings("ignore:noise_multiplier is 0")
def test_every_step_is_that_of_the_algorithm(sigma, accounting, bound):
    net, optimizer = adasig(
        model(dtype=torch.float64), sigma=sigma, accounting=accounting, max_grad_norm=bound
    )
    plain = model(dtype=torch.float64)
    parameters = list(plain.parameters())
    state = SlopeState(slope=1.0)
    stream = generator()
    ratio = "joint" if accounting == "joint" else 1.01
    sigma_s, sigma_r = split_noise(sigma, ratio)
    slopes = []
    for inputs, targets in batches(dataset()) * 4:
        inputs = inputs.double()
        losses = nn.functional.cross_entropy(plain(inputs), targets, reduction="none")
        sgd_step(
            clipped_sums(losses, parameters, state.slope, bound),
            parameters,
            state,
            lr=0.5,
            slope_lr=0.1,
            batch_size=32,
            sigma_s=sigma_s,
            sigma_r=sigma_r,
            noise=lambda std, like: _generate_noise(std, like, stream),
            max_grad_norm=bound,
        )
        step(net, optimizer, inputs, targets)
        slopes.append(state.slope)
        # Norms are rounded up by 2^-16, weights with them.
        assert torch.allclose(flat(net), flat(plain), rtol=1e-4, atol=1e-4)
        assert optimizer.slope == pytest.approx(state.slope, rel=1e-12)
    assert len(set(slopes)) > 2
    assert slopes[0] == 1.0  # no direction is known at the first step


def test_the_slope_sees_the_gradients_as_they_were_before_the_models_step():
    """Torch's fused loops write Nesterov's momentum into the gradients; its plain ones do not."""
    arms = []
    for foreach in (False, True):
        net = model()
        inner = torch.optim.SGD(
            net.parameters(), lr=0.5, momentum=0.9, nesterov=True, foreach=foreach
        )
        optimizer = AdaSigDPOptimizer(
            inner,
            noise_multiplier=1.0,
            expected_batch_size=32,
            slope_lr=0.1,
            generator=generator(),
        )
        wrapped = GradSampleModule(net)
        for inputs, targets in batches(dataset()) * 10:
            step(wrapped, optimizer, inputs, targets)
        arms.append(list(optimizer.slope_history))
    assert arms[0] == arms[1]


@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_noise_has_the_scales_of_the_split(sigma):
    net = nn.Linear(200, 200, bias=False)
    for accounting, slope in (("paper", 0.5), ("joint", 4.0)):
        wrapped, optimizer = adasig(
            copy.deepcopy(net),
            sigma=sigma,
            accounting=accounting,
            initial_slope=slope,
            max_grad_norm=0.2,
            loss_reduction="sum",
        )
        optimizer.zero_grad()
        (wrapped(torch.zeros(0, 200)).sum()).backward()
        optimizer.step()
        sigma_s, sigma_r = split_noise(sigma, "joint" if accounting == "joint" else 1.01)
        (p,) = optimizer.params
        assert p.grad.std().item() == pytest.approx(0.2 * sigma_s, rel=0.02)
        direction = optimizer.state_dict()["adasig"]["slope_direction"][0]
        assert direction.std().item() == pytest.approx(sensitivity(slope) * sigma_r, rel=0.02)
        assert optimizer.noise_multiplier == sigma


def test_a_fixed_slope_takes_no_noise_of_the_sum():
    net, optimizer = adasig(model(), adapt=False, initial_slope=2.0)
    assert optimizer.noise_multipliers == (1.0, 0.0)
    for inputs, targets in batches(dataset()):
        step(net, optimizer, inputs, targets)
    assert optimizer.slope == 2.0
    assert optimizer.state_dict()["adasig"]["slope_direction"] is None


@pytest.mark.parametrize("accounting", ["paper", "joint"])
def test_the_slope_moves_by_whole_steps_and_no_faster(accounting):
    net, optimizer = adasig(model(), accounting=accounting, slope_lr=0.02, initial_slope=3.0)
    for t, (inputs, targets) in enumerate(batches(dataset()) * 20, 1):
        step(net, optimizer, inputs, targets)
        steps = math.log(optimizer.slope / 3.0) / 0.02
        assert abs(steps) <= t - 1 + 1e-9  # the first step knows no direction
        assert steps == pytest.approx(round(steps), abs=1e-9)
    history = optimizer.slope_history
    assert len(history) == 60
    assert history[0] == history[1] == 3.0
    assert {
        round(b / a, 6) for a, b in zip(list(history)[1:], list(history)[2:], strict=False)
    } <= {
        round(math.exp(0.02), 6),
        round(math.exp(-0.02), 6),
    }


def test_the_slope_stays_within_its_bounds_and_still_at_rate_zero():
    for options, allowed in (
        ({"slope_lr": 5.0, "min_slope": 0.5, "max_slope": 2.0}, {0.5, 1.0, 2.0}),
        ({"slope_lr": 0.0}, {1.0}),
    ):
        net, optimizer = adasig(model(), **options)
        for inputs, targets in batches(dataset()) * 5:
            step(net, optimizer, inputs, targets)
        assert set(optimizer.slope_history) <= allowed
        assert optimizer.slope in allowed


def test_a_steep_sigmoid_is_auto_clipping_without_constant():
    ours, theirs = model(), model()
    net, optimizer = adasig(ours, adapt=False, initial_slope=1e6, sigma=0.0)
    other = GradSampleModule(theirs)
    normalising = NormWeightedDPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=0.5),
        weight=partial(auto_s_weight, r=1e-12),
        noise_multiplier=0.0,
        expected_batch_size=32,
    )
    for inputs, targets in batches(dataset()):
        step(net, optimizer, inputs, targets)
        step(other, normalising, inputs, targets)
    assert torch.allclose(flat(net), flat(other), atol=1e-6)


def test_weights_of_the_norm_are_those_of_a_plain_sum():
    """The product of all weights and gradients, against one gradient after another."""
    net = GradSampleModule(model())
    optimizer = NormWeightedDPOptimizer(
        torch.optim.SGD(net.parameters(), lr=1.0),
        weight=flat_weight,
        noise_multiplier=0.0,
        max_grad_norm=0.4,
        expected_batch_size=None,
        loss_reduction="sum",
    )
    inputs, targets = dataset().tensors
    backward(net, inputs, targets)
    gradients = [p.grad_sample.clone() for p in net.parameters()]
    optimizer.step()
    for i, p in enumerate(net.parameters()):
        total = torch.zeros_like(p)
        for k in range(len(inputs)):
            norm = math.sqrt(sum(float(g[k].double().square().sum()) for g in gradients))
            total += gradients[i][k] * min(1.0, 0.4 / norm)
        assert torch.allclose(p.grad, total, atol=2e-4)


@given(
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.floats(-6, 6),
    st.floats(-44, 38),
    st.integers(0, 2**31),
)
@settings(deadline=None, max_examples=60)
def test_one_sample_moves_no_sum_beyond_its_sensitivity(dtype, slope, size, seed):
    slope = 10.0**slope
    p = nn.Parameter(torch.zeros(40, dtype=dtype))
    optimizer = AdaSigDPOptimizer(
        torch.optim.SGD([p], lr=1.0),
        noise_multiplier=1.0,
        expected_batch_size=1,
        initial_slope=slope,
    )
    raw = torch.randn(1, 40, generator=generator(seed)).double() * 10.0**size
    limit = torch.finfo(dtype).max
    p.grad_sample = raw.clamp(-limit, limit).to(dtype)
    optimizer.clip_and_accumulate()
    assert p.summed_grad.dtype == torch.float32
    assert p.summed_grad.double().norm() <= 1
    assert optimizer._slope_sums[0].double().norm() <= sensitivity(slope)


@pytest.mark.parametrize("adapt", [True, False])
def test_parts_of_a_batch_give_what_the_batch_gives(adapt):
    whole, parts = adasig(model(), adapt=adapt), adasig(model(), adapt=adapt)
    for inputs, targets in batches(dataset()) * 3:
        step(*whole, inputs, targets)
        net, optimizer = parts
        for part in (slice(0, 10), slice(10, 15), slice(15, 32)):
            optimizer.signal_skip_step(do_skip=part.stop < 32)
            slope = optimizer.slope
            step(net, optimizer, inputs[part], targets[part])
            assert part.stop == 32 or optimizer.slope == slope
        assert torch.allclose(flat(whole[0]), flat(net), atol=1e-6)
        assert whole[1].slope == optimizer.slope
    assert len(optimizer.slope_history) == 9


def test_gradients_accumulated_over_backward_passes_count_as_one_batch():
    whole, parts = adasig(model(), loss_reduction="sum"), adasig(model(), loss_reduction="sum")
    for inputs, targets in batches(dataset()):
        step(*whole, inputs, targets)
        parts[1].zero_grad()
        for part in (slice(0, 16), slice(16, 32)):
            backward(parts[0], inputs[part], targets[part])
        parts[1].step()
        assert torch.allclose(flat(whole[0]), flat(parts[0]), atol=1e-6)


def test_an_empty_batch_takes_both_noises_and_a_step_of_the_slope():
    net, optimizer = adasig(model())
    inputs, targets = batches(dataset())[0]
    step(net, optimizer, inputs, targets)
    before, direction = flat(net), optimizer.state_dict()["adasig"]["slope_direction"]
    step(net, optimizer, inputs[:0], targets[:0])
    after = optimizer.state_dict()["adasig"]["slope_direction"]
    assert (flat(net) != before).all()
    assert all((a != b).all() for a, b in zip(after, direction, strict=True))
    assert optimizer.slope in (math.exp(0.1), math.exp(-0.1))
    assert flat(net).isfinite().all()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_saved_training_goes_on_bit_by_bit(momentum):
    straight = adasig(model(), momentum=momentum)
    for inputs, targets in batches(dataset()) * 4:
        step(*straight, inputs, targets)

    net, optimizer = adasig(model(), momentum=momentum)
    for inputs, targets in batches(dataset()) * 2:
        step(net, optimizer, inputs, targets)
    file = io.BytesIO()
    saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**saved, "noise": optimizer.generator.get_state()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    net, optimizer = adasig(model(seed=5), momentum=momentum, initial_slope=9.0)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    optimizer.generator.set_state(saved["noise"])
    for inputs, targets in batches(dataset()) * 2:
        step(net, optimizer, inputs, targets)
    assert torch.equal(flat(net), flat(straight[0]))
    assert optimizer.slope == straight[1].slope
    assert optimizer.slope_history == straight[1].slope_history


def test_a_saved_state_is_not_changed_by_going_on():
    net, optimizer = adasig(model())
    inputs, targets = batches(dataset())[0]
    step(net, optimizer, inputs, targets)
    saved = optimizer.state_dict()["adasig"]
    kept = copy.deepcopy(saved)
    step(net, optimizer, inputs, targets)
    assert saved["slope_history"] == kept["slope_history"]
    assert all(map(torch.equal, saved["slope_direction"], kept["slope_direction"]))


def test_a_plain_state_is_taken_with_a_warning():
    plain = torch.optim.SGD(model().parameters(), lr=0.125, momentum=0.9)
    _, optimizer = adasig(model(), initial_slope=2.0)
    with pytest.warns(UserWarning, match="the state holds no slope: starting from 2"):
        optimizer.load_state_dict(plain.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.125
    assert optimizer.slope == 2.0


def test_a_state_of_another_model_is_refused():
    net, optimizer = adasig(model())
    inputs, targets = batches(dataset())[0]
    step(net, optimizer, inputs, targets)
    state = optimizer.state_dict()
    state["adasig"]["slope_direction"] = [torch.zeros(2)] * 4
    with pytest.raises(ValueError, match=r"slope_direction: got shapes .*, wants"):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"slope": math.nan}, ValueError, "slope: got nan, wants a finite number > 0"),
        ({"slope": -1.0}, ValueError, "slope: got -1.0, wants a finite number > 0"),
        ({"slope": "2"}, TypeError, "slope: got '2', wants one number > 0"),
        (None, ValueError, r"state_dict: got \['slope'\] under 'adasig', wants also \['slope_dir"),
    ],
)
def test_a_broken_state_is_refused_and_changes_nothing(change, error, message):
    _, optimizer = adasig(model())
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = 7.0
    state["adasig"] = {"slope": 1.0} if change is None else {**state["adasig"], **change}
    with pytest.raises(error, match=message):
        optimizer.load_state_dict(state)
    assert optimizer.slope == 1.0
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_state_is_plain_whatever_numbers_the_slope_was_given_in(tmp_path):
    net, optimizer = adasig(
        model(), initial_slope=np.float32(2.0), slope_lr=np.float64(0.5), max_slope=np.float64(3)
    )
    for inputs, targets in batches(dataset()):
        step(net, optimizer, inputs, targets)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state["adasig"]["slope"] == optimizer.slope != 2.0


def test_loading_drops_the_sums_of_an_unfinished_batch():
    net, optimizer = adasig(model())
    inputs, targets = batches(dataset())[0]
    step(net, optimizer, inputs, targets)
    state = optimizer.state_dict()
    resumed = adasig(model())
    for do_skip in (True, False):
        resumed[1].signal_skip_step(do_skip)
        if not do_skip:
            resumed[0].load_state_dict(net.state_dict())
            resumed[1].load_state_dict(state)
            resumed[1].generator.set_state(optimizer.generator.get_state())
        step(*resumed, inputs, targets)
    step(net, optimizer, inputs, targets)
    assert torch.equal(flat(resumed[0]), flat(net))
    assert resumed[1].slope == optimizer.slope


def test_parameters_may_be_frozen_and_thawed():
    net, optimizer = adasig(model(), sigma=0.1)
    data = batches(dataset())
    for i in range(9):
        net._module[0].requires_grad_(i not in (3, 4, 5))
        step(net, optimizer, *data[i % 3])
    slopes = [*optimizer.slope_history, optimizer.slope]
    still = [i for i in range(9) if slopes[i] == slopes[i + 1]]
    assert still == [0, 3, 6]  # no direction of the step before fits


def test_bf16_parameters_take_noise_before_they_are_rounded():
    net, optimizer = adasig(model(dtype=torch.bfloat16))
    for inputs, targets in batches(dataset()) * 2:
        step(net, optimizer, inputs.bfloat16(), targets)
    assert all(p.grad.dtype == p.dtype == torch.bfloat16 for p in optimizer.params)
    assert flat(net).isfinite().all()


def test_sums_are_in_full_precision_where_the_model_is_not():
    sums = []
    before = torch.get_float32_matmul_precision()
    for low in (False, True):
        net, optimizer = adasig(model(), sigma=0.5)
        optimizer.zero_grad()
        backward(net, *batches(dataset())[0])
        torch.set_float32_matmul_precision("medium" if low else "highest")
        try:
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                optimizer.step()
                with _full_precision("cpu"):
                    assert not torch.is_autocast_enabled("cpu")
                    assert torch.get_float32_matmul_precision() == "highest"
                assert torch.is_autocast_enabled("cpu") is low
            assert torch.get_float32_matmul_precision() == ("medium" if low else "highest")
        finally:
            torch.set_float32_matmul_precision(before)
        sums.append(torch.cat([p.summed_grad.flatten() for p in optimizer.params]))
    assert torch.equal(*sums)


def test_diagnostics_without_noise_agree_with_themselves():
    net, optimizer = adasig(model(), sigma=0.0, diagnostics=True)
    seen = []
    for inputs, targets in batches(dataset()) * 2:
        optimizer.zero_grad()
        backward(net, inputs, targets)
        gradients = [p.grad_sample.flatten(1).double() for p in net.parameters()]
        optimizer.step()
        rows = torch.cat(gradients, dim=1)
        weights = adasig_weight(rows.norm(dim=1), optimizer.slope_history[-1])
        cosine = torch.cosine_similarity(weights @ rows, rows.sum(0), dim=0).item()
        assert optimizer.last_diagnostics.cosine == pytest.approx(cosine, abs=1e-5)
        assert optimizer.last_diagnostics.snr == math.inf
        seen.append(optimizer.last_diagnostics)
    assert seen[0].noiseless_sign is None
    assert seen[0].agreed is None
    assert all(d.agreed and d.noiseless_sign in (-1, 1) for d in seen[1:])


def test_diagnostics_under_noise():
    net, optimizer = adasig(model(), sigma=30.0, diagnostics=True, loss_reduction="sum")
    agreed = []
    for inputs, targets in batches(dataset()) * 20:
        slope = optimizer.slope
        step(net, optimizer, inputs, targets)
        found = optimizer.last_diagnostics
        sums = torch.cat([p.summed_grad.flatten() for p in optimizer.params])
        assert found.snr == pytest.approx((sums.norm() / (1.01 * 30.0)).item(), rel=1e-5)
        if found.agreed is not None:
            moved = round(math.log(optimizer.slope / slope) / 0.1)
            assert found.agreed == (moved == found.noiseless_sign)
            agreed.append(found.agreed)
    assert 0 < sum(agreed) < len(agreed)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_gradients_that_are_not_finite(value):
    inputs, targets = batches(dataset())[0]
    bad = inputs.clone()
    bad[3, 0] = bad[11, 2] = value
    net, optimizer = adasig(model())
    with pytest.raises(ValueError, match="gradients: 2 of 32 samples hold inf or NaN"):
        step(net, optimizer, bad, targets)

    net, optimizer = adasig(model(), nonfinite="zero", diagnostics=True)
    step(net, optimizer, bad, targets)
    kept = [i for i in range(32) if i not in (3, 11)]
    clean, without = adasig(model(), diagnostics=True)
    step(clean, without, inputs[kept], targets[kept])
    assert torch.allclose(flat(net), flat(clean), atol=1e-6)


def test_zero_gradients_add_nothing():
    net, optimizer = adasig(model(), sigma=0.0)
    before = flat(net)
    optimizer.zero_grad()
    (net(torch.zeros(4, 6)) * 0).sum().backward()
    optimizer.step()
    assert torch.equal(flat(net), before)
    assert optimizer.slope == 1.0


def test_gradients_are_used_once():
    net, optimizer = adasig(model())
    inputs, targets = batches(dataset())[0]
    step(net, optimizer, inputs, targets)
    with pytest.raises(ValueError, match="Gradients haven't been cleared"):
        optimizer.step()


def test_sums_are_released_once():
    net, optimizer = adasig(model())
    inputs, targets = batches(dataset())[0]
    step(net, optimizer, inputs, targets)
    net.zero_grad()  # of the model, which knows nothing of the optimizer's sums
    backward(net, inputs, targets)
    with pytest.raises(ValueError, match="Gradients haven't been cleared"):
        optimizer.step()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sigma": -1.0}, ValueError, r"noise_multiplier: got -1.0, wants a finite number >= 0"),
        ({"max_grad_norm": 0.0}, ValueError, r"max_grad_norm: got 0.0, wants a finite number > 0"),
        ({"max_grad_norm": [1.0] * 4}, TypeError, r"max_grad_norm: got .*, wants one number > 0"),
        ({"batch": None}, TypeError, r"expected_batch_size: got None, wants one number > 0"),
        ({"batch": 0}, ValueError, r"expected_batch_size: got 0, wants a finite number > 0"),
        ({"loss_reduction": "max"}, ValueError, r"loss_reduction: got 'max', wants one of mean"),
        ({"initial_slope": 0.0}, ValueError, r"initial_slope: got 0.0, wants a finite number > 0"),
        (
            {"initial_slope": 2e6},
            ValueError,
            r"initial_slope: got 2000000.0, wants 1e-06 to 1e\+06",
        ),
        ({"slope_lr": -0.1}, ValueError, r"slope_lr: got -0.1, wants a finite number from 0 to"),
        ({"slope_lr": math.nan}, ValueError, r"slope_lr: got nan, wants a finite number from 0"),
        ({"slope_lr": 1e3}, ValueError, r"slope_lr: got 1000.0, wants a finite number from 0 to"),
        ({"noise_split": 1.0}, ValueError, r"noise_split: got 1.0, wants a finite number > 1"),
        ({"accounting": "rdp"}, ValueError, r"accounting: got 'rdp', wants one of paper, joint"),
        ({"min_slope": 0}, ValueError, r"min_slope: got 0, wants a finite number > 0"),
        ({"max_slope": 1e-9}, ValueError, r"max_slope: got 1e-09, wants a finite number >= 1e-06"),
        ({"nonfinite": "skip"}, ValueError, r"nonfinite: got 'skip', wants one of raise, zero"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        adasig(model(), **options)


def test_adapting_without_noise_warns():
    with pytest.warns(UserWarning, match="neither the model nor the slope is private"):
        adasig(model(), sigma=0.0)
