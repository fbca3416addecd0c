"""Ghost clipping: the same sums as per-sample gradients, without them."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus.grad_sample import (  # noqa: E402
    GradSampleModule,
    GradSampleModuleFastGradientClipping,
)
from tests.papers.adasig.training import batches, dataset, flat, generator, model  # noqa: E402
from torch import nn  # noqa: E402

from assay.papers.adasig import (  # noqa: E402
    AdaSigDPOptimizer,
    AdaSigDPOptimizerFastGradientClipping,
    NormWeightedDPOptimizer,
    NormWeightedLoss,
    psac_weight,
)
from assay.papers.adasig.ghost import NormWeightedDPOptimizerFastGradientClipping  # noqa: E402


def convolutional():
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)),
        nn.Conv2d(1, 4, 2, padding=1),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(48, 3),
    )


def recurrent():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Unflatten(1, (3, 2)), nn.Linear(2, 5), nn.Tanh(), Last(), nn.Linear(5, 3)
    )


class Last(nn.Module):
    def forward(self, x):
        return x[:, -1] + x.mean(1)


MODELS = {"mlp": model, "cnn": convolutional, "sequence": recurrent}


class Ghost:
    """A training in ghost mode; the interface of `Hooks`."""

    def __init__(
        self, net, kind=AdaSigDPOptimizerFastGradientClipping, reduction="mean", **options
    ):
        self.net = GradSampleModuleFastGradientClipping(net, loss_reduction=reduction)
        self.optimizer = kind(
            torch.optim.SGD(net.parameters(), lr=0.5 if reduction == "mean" else 0.5 / 32),
            noise_multiplier=1.0,
            expected_batch_size=32,
            generator=generator(),
            loss_reduction=reduction,
            **options,
        )
        criterion = nn.CrossEntropyLoss(reduction=reduction)
        self.criterion = NormWeightedLoss(self.net, self.optimizer, criterion, reduction)

    def loss(self, inputs, targets):
        return self.criterion(self.net(inputs), targets)

    def step(self, inputs, targets):
        self.optimizer.zero_grad()
        self.loss(inputs, targets).backward()
        self.optimizer.step()


class Hooks(Ghost):
    def __init__(self, net, kind=AdaSigDPOptimizer, reduction="mean", functorch=False, **options):
        self.net = GradSampleModule(net, loss_reduction=reduction, force_functorch=functorch)
        self.optimizer = kind(
            torch.optim.SGD(net.parameters(), lr=0.5 if reduction == "mean" else 0.5 / 32),
            noise_multiplier=1.0,
            expected_batch_size=32,
            generator=generator(),
            loss_reduction=reduction,
            **options,
        )
        self.criterion = nn.CrossEntropyLoss(reduction=reduction)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("adapt", [True, False])
def test_hooks_functorch_and_ghost_agree(name, reduction, adapt):
    options = {"reduction": reduction, "adapt": adapt, "slope_lr": 0.1, "max_grad_norm": 0.7}
    hooks = Hooks(MODELS[name](), **options)
    functorch = Hooks(MODELS[name](), functorch=True, **options)
    ghost = Ghost(MODELS[name](), **options)
    for inputs, targets in batches(dataset()) * 3:
        for arm in (hooks, functorch, ghost):
            arm.step(inputs, targets)
        for other in (functorch, ghost):
            for p, q in zip(hooks.optimizer.params, other.optimizer.params, strict=True):
                assert torch.allclose(p.summed_grad, q.summed_grad, rtol=1e-5, atol=1e-5)
            if adapt:
                for r, s in zip(
                    hooks.optimizer._slope_sums, other.optimizer._slope_sums, strict=True
                ):
                    assert torch.allclose(r, s, rtol=1e-5, atol=1e-5)
            assert other.optimizer.slope == hooks.optimizer.slope
    assert adapt == (len(set(hooks.optimizer.slope_history)) > 1)


def test_other_weights_agree_too():
    options = {"weight": psac_weight, "max_grad_norm": 0.7}
    hooks = Hooks(model(), NormWeightedDPOptimizer, **options)
    ghost = Ghost(model(), NormWeightedDPOptimizerFastGradientClipping, **options)
    for inputs, targets in batches(dataset()):
        hooks.step(inputs, targets)
        ghost.step(inputs, targets)
    assert torch.allclose(flat(hooks.net), flat(ghost.net), atol=1e-5)


def test_parts_of_a_batch_give_what_the_batch_gives():
    whole, parts = Ghost(model(), slope_lr=0.1), Ghost(model(), slope_lr=0.1)
    for inputs, targets in batches(dataset()) * 3:
        whole.step(inputs, targets)
        for part in (slice(0, 10), slice(10, 15), slice(15, 32)):
            parts.optimizer.signal_skip_step(do_skip=part.stop < 32)
            parts.step(inputs[part], targets[part])
        assert torch.allclose(flat(whole.net), flat(parts.net), atol=1e-6)
        assert whole.optimizer.slope == parts.optimizer.slope


def test_an_empty_batch_is_a_batch():
    ghost, hooks = Ghost(model(), slope_lr=0.1), Hooks(model(), slope_lr=0.1)
    inputs, targets = batches(dataset())[0]
    for arm in (ghost, hooks):
        arm.step(inputs, targets)
        arm.step(inputs[:0], targets[:0])
    assert torch.allclose(flat(ghost.net), flat(hooks.net), atol=1e-6)
    assert ghost.optimizer.slope == hooks.optimizer.slope != 1.0


def test_an_unused_parameter_gets_noise_alone():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(6, 3), nn.Linear(2, 2)
            self.idle.requires_grad_(False)

        def forward(self, x):
            return self.used(x)

    net = Unused()
    ghost = Ghost(net)
    inputs, targets = batches(dataset())[0]
    ghost.step(inputs, targets)
    assert net.idle.weight.grad is None
    assert net.used.weight.grad is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda loss: loss * 2,
        lambda loss: 2 * loss,
        lambda loss: loss / 0.5,
        lambda loss: loss + loss,
        lambda loss: -(-loss - loss),
        lambda loss: loss - (-loss),
        lambda loss: 1.0 - (1.0 - 2 * loss),
    ],
)
def test_arithmetic_on_losses_keeps_the_clipping(change):
    ghost, doubled = Ghost(model()), Hooks(model())
    inputs, targets = batches(dataset())[0]
    change(ghost.loss(inputs, targets)).backward()
    ghost.optimizer.step()
    (doubled.loss(inputs, targets) * 2).backward()
    doubled.optimizer.step()
    assert torch.allclose(flat(ghost.net), flat(doubled.net), atol=1e-6)


def test_two_losses_of_a_batch_add_up_per_sample():
    ghost = Ghost(model())
    inputs, targets = batches(dataset())[0]
    outputs = ghost.net(inputs)
    one = ghost.criterion(outputs, targets)
    two = one + ghost.criterion(outputs, (targets + 1) % 3)
    assert two.loss_per_sample.shape == (32,)
    assert two.item() > one.item()


def test_steps_and_backward_passes_take_turns():
    ghost = Ghost(model())
    inputs, targets = batches(dataset())[0]
    with pytest.raises(ValueError, match=r"step: got no gradients, wants loss.backward\(\)"):
        ghost.optimizer.step()
    ghost.loss(inputs, targets).backward()
    with pytest.raises(ValueError, match=r"loss.backward: got a second call before optimizer.step"):
        ghost.loss(inputs, targets).backward()
    ghost.optimizer.zero_grad()
    ghost.step(inputs, targets)


def test_unclipped_sums_are_left_nowhere():
    ghost = Ghost(model())
    inputs, targets = batches(dataset())[0]
    ghost.loss(inputs, targets).backward()
    assert all(p.grad is None or not p.grad.any() for p in ghost.optimizer.params)


def test_a_step_forgets_the_sums_of_the_one_before_without_zero_grad():
    careful, careless = Ghost(model(), slope_lr=0.1), Ghost(model(), slope_lr=0.1)
    for inputs, targets in batches(dataset()) * 2:
        careful.step(inputs, targets)
        careless.loss(inputs, targets).backward()
        careless.optimizer.step()
        pairs = zip(careful.optimizer._slope_sums, careless.optimizer._slope_sums, strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert torch.equal(flat(careful.net), flat(careless.net))


def test_losses_in_a_column_are_one_per_sample():
    ghost, hooks = (kind(nn.Linear(6, 1)) for kind in (Ghost, Hooks))
    hooks.net.load_state_dict(ghost.net.state_dict())
    ghost.criterion.criterion = hooks.criterion = nn.MSELoss()
    inputs, targets = batches(dataset())[0]
    for arm in (ghost, hooks):
        arm.step(inputs, targets[:, None].float())
    assert torch.allclose(flat(ghost.net), flat(hooks.net), atol=1e-6)


@pytest.mark.parametrize(
    ("criterion", "shape"),
    [
        (lambda x, y: nn.functional.cross_entropy(x, y), r"\(\)"),
        (lambda x, y: nn.functional.cross_entropy(x, y)[None], r"\(1,\)"),
        (lambda x, y: x, r"\(32, 3\)"),
    ],
)
def test_losses_that_are_not_one_per_sample_are_refused(criterion, shape):
    ghost = Ghost(model())
    criterion.reduction = "mean"
    ghost.criterion.criterion = criterion
    with pytest.raises(ValueError, match=f"criterion: got losses of shape {shape} .*one per samp"):
        ghost.step(*batches(dataset())[0])


def test_what_was_frozen_at_first_is_not_trained_unclipped():
    net = model()
    net[0].requires_grad_(False)
    ghost = Ghost(net)
    net[0].requires_grad_(True)
    with pytest.raises(ValueError, match=r"parameters: got 2 .* frozen at make_private"):
        ghost.step(*batches(dataset())[0])


def test_norms_in_low_precision_are_refused():
    ghost = Ghost(model())
    inputs, targets = batches(dataset())[0]
    with torch.autocast("cpu", torch.bfloat16):
        outputs = ghost.net(inputs).float()
    with pytest.raises(ValueError, match=r"norms: got torch.bfloat16, wants float32"):
        ghost.criterion(outputs, targets).backward()


def test_a_failed_backward_pass_spoils_no_later_one(monkeypatch):
    ghost, fresh = Ghost(model()), Ghost(model())
    inputs, targets = batches(dataset())[0]

    def full(*_, **__):
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patched:
        patched.setattr(torch.autograd, "grad", full)
        with pytest.raises(torch.OutOfMemoryError):
            ghost.step(inputs, targets)
    for arm in (ghost, fresh):
        arm.step(inputs[:16], targets[:16])
    assert torch.equal(flat(ghost.net), flat(fresh.net))


def test_gradients_that_are_not_finite():
    ghost = Ghost(model())
    inputs, targets = batches(dataset())[0]
    inputs = inputs.clone()
    inputs[4, 1] = math.nan
    with pytest.raises(
        ValueError, match=r"gradients: 1 of 32 samples hold inf or NaN.*not in ghost"
    ):
        ghost.step(inputs, targets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diagnostics": True}, "diagnostics: got True, wants False in ghost mode"),
        ({"nonfinite": "zero"}, "nonfinite: got 'zero', wants \"raise\" in ghost mode"),
    ],
)
def test_what_needs_per_sample_gradients_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Ghost(model(), **options)


def test_low_precision_parameters_are_refused():
    with pytest.raises(ValueError, match=r"parameters: got torch.bfloat16, wants float32"):
        Ghost(model(dtype=torch.bfloat16))
