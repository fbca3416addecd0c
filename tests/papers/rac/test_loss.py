"""The losses, against loops over steps, finite differences and their special cases."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from tests.papers.rac.batches import random_batch

from assay.papers.rac.context import ReturnContext
from assay.papers.rac.loss import (
    bootstrap,
    distillation,
    hysteretic_loss,
    iql_loss,
    lenient_loss,
    over_steps,
    rac_loss,
    taken,
    td_error,
)
from assay.papers.rac.network import RACNet, optimistic


def nets(contexts=4, head="hyper", recurrent=True, dtype=torch.float32, obs_dim=3, actions=3):
    torch.manual_seed(0)
    options = {"hidden": 8, "recurrent": recurrent, "context_head": head}
    pair = [RACNet(obs_dim, actions, contexts, **options).to(dtype) for _ in range(2)]
    return pair[0], pair[1]


CONTEXT = ReturnContext(-2, 2, 4)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("head", ["hyper", "concat"])
def test_the_loss_is_that_of_a_loop_over_steps(head, double):
    net, target = nets(head=head)
    batch = random_batch()
    found = rac_loss(net, target, batch, CONTEXT, 0.9, 0.5, double)

    q_c, t_c = net.contextual(batch.obs)[0], target.contextual(batch.obs)[0]
    q_s, t_s = net.behaviour(batch.obs)[0], target.behaviour(batch.obs)[0]
    td_c, td_s, kl, steps = 0.0, 0.0, 0.0, 0
    for b in range(len(batch.actions)):
        length = int(batch.filled[b].sum())
        kappa = int(CONTEXT.index(batch.rewards[b, :length].double().sum().item()))
        for t in range(length):
            allowed = batch.mask[b, t + 1].nonzero().ravel().tolist()
            errors = []
            for values, targets in ((q_c[b, :, kappa], t_c[b, :, kappa]), (q_s[b], t_s[b])):
                chooser = values if double else targets
                best = max(allowed, key=lambda a: chooser[t + 1, a].item())
                goal = batch.rewards[b, t]
                if not batch.terminated[b, t]:
                    goal = goal + 0.9 * targets[t + 1, best]
                errors.append((goal.detach() - values[t, batch.actions[b, t]]) ** 2)
            td_c, td_s = td_c + errors[0], td_s + errors[1]
            able = batch.mask[b, t]
            phi = q_c[b, t].max(0).values[able].detach()
            p, q = q_s[b, t][able].softmax(0), phi.softmax(0)
            kl += (p * (p / q).log()).sum()
            steps += 1
    assert torch.allclose(found["td_c"], td_c / steps, rtol=1e-4)
    assert torch.allclose(found["td_s"], td_s / steps, rtol=1e-4)
    assert torch.allclose(found["kl"], kl / steps, rtol=1e-4)
    whole = found["td_c"] + found["td_s"] + 0.5 * found["kl"]
    assert torch.allclose(found["loss"], whole)


@pytest.mark.parametrize("head", ["hyper", "concat"])
@pytest.mark.parametrize("recurrent", [True, False])
def test_gradients_agree_with_finite_differences(head, recurrent):
    net, target = nets(head=head, recurrent=recurrent, dtype=torch.float64)
    batch = random_batch(dtype=torch.float64)

    net.zero_grad()
    rac_loss(net, target, batch, CONTEXT, 0.9, 0.5)["loss"].backward()
    grads = {name: p.grad.clone() for name, p in net.named_parameters()}
    frozen = copy.deepcopy(net)
    g = torch.Generator().manual_seed(1)
    for name, parameter in net.named_parameters():
        direction = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
        step = 1e-6
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * direction
            values.append(still_loss(net, frozen, target, batch))
            with torch.no_grad():
                parameter -= sign * step * direction
        slope = (values[0] - values[1]) / (2 * step)
        assert slope == pytest.approx((grads[name] * direction).sum().item(), rel=1e-5, abs=1e-7)


def still_loss(net, frozen, target, batch):
    """The loss of `net` with the choice of next actions and phi taken from `frozen`."""
    kappa = torch.from_numpy(CONTEXT.index(batch.returns.numpy()))
    each = torch.arange(len(kappa))
    with torch.no_grad():
        q_c, old_c, bar_c = (n.contextual(batch.obs)[0] for n in (net, frozen, target))
        q_s, old_s, bar_s = (n.behaviour(batch.obs)[0] for n in (net, frozen, target))
        loss = 0.0
        for new, old, bar in (
            (q_c[each, :, kappa], old_c[each, :, kappa], bar_c[each, :, kappa]),
            (q_s, old_s, bar_s),
        ):
            goal = bootstrap(old, bar, batch, 0.9, True)
            loss += over_steps((goal - taken(new, batch.actions)) ** 2, batch.filled)
        phi = optimistic(old_c[:, :-1])
        kl = distillation(q_s[:, :-1], phi, batch.mask[:, :-1])
        return (loss + 0.5 * over_steps(kl, batch.filled)).item()


def test_distillation_is_a_divergence():
    g = torch.Generator().manual_seed(0)
    behaviour, phi = torch.randn(2, 50, 4, generator=g).double()
    mask = torch.ones(50, 4, dtype=torch.bool)
    assert (distillation(behaviour, phi, mask) > 0).all()
    assert distillation(phi + 3.0, phi, mask).abs().max() < 1e-12
    direct = torch.nn.functional.kl_div(
        phi.log_softmax(-1), behaviour.log_softmax(-1), log_target=True, reduction="none"
    ).sum(-1)
    assert torch.allclose(distillation(behaviour, phi, mask), direct)


def test_unavailable_and_unseen_actions_are_in_neither_distribution():
    behaviour = torch.randn(6, 4, requires_grad=True)
    phi = torch.randn(6, 4)
    mask = torch.ones(6, 4, dtype=torch.bool)
    mask[:, 1] = False
    kept = [0, 2, 3]
    expected = distillation(behaviour[:, kept], phi[:, kept], mask[:, kept])
    for found in (
        distillation(behaviour, phi, mask),
        distillation(behaviour, phi.masked_fill(~mask, -torch.inf), torch.ones_like(mask)),
    ):
        assert torch.allclose(found, expected)
        (grad,) = torch.autograd.grad(found.sum(), behaviour)
        assert grad.isfinite().all()
        assert (grad[:, 1] == 0).all()


def test_distillation_moves_q_s_only():
    net, target = nets()
    found = rac_loss(net, target, random_batch(), CONTEXT, 0.9, 1.0)
    found["kl"].backward()
    for name, parameter in net.named_parameters():
        if name.startswith(("trunk", "head")):
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert parameter.grad is None or (parameter.grad == 0).all(), name


def test_with_one_context_q_c_learns_iqls_target():
    net, target = nets(contexts=1, head="concat")
    batch = random_batch()
    for pair in (net, target):
        pair.context_trunk.load_state_dict(pair.trunk.state_dict())
        with torch.no_grad():
            pair.concat.weight[:, :-1] = pair.head.weight
            pair.concat.weight[:, -1] = 0
            pair.concat.bias.copy_(pair.head.bias)
    found = rac_loss(net, target, batch, ReturnContext(-9, 9, 1), 0.9, 0.0)
    assert found["td_c"] == found["td_s"] == iql_loss(net, target, batch, 0.9)["loss"]


def test_hysteretic_and_lenient_reach_iql():
    net, target = nets()
    batch = random_batch()
    iql = iql_loss(net, target, batch, 0.9)["loss"]
    everything = torch.ones_like(batch.actions, dtype=torch.bool)
    assert hysteretic_loss(net, target, batch, 0.9, 1.0)["loss"] == iql
    assert lenient_loss(net, target, batch, 0.9, everything)["loss"] == iql
    none = lenient_loss(net, target, batch, 0.9, ~everything)["loss"]
    assert none == hysteretic_loss(net, target, batch, 0.9, 0.0)["loss"] < iql
    error = td_error(net, target, batch, 0.9)
    half = (torch.where(error < 0, 0.25, 1.0) * error**2 * batch.filled).sum() / batch.filled.sum()
    assert torch.allclose(hysteretic_loss(net, target, batch, 0.9, 0.25)["loss"], half)


def test_padding_changes_nothing():
    net, target = nets()
    batch = random_batch()
    g = torch.Generator().manual_seed(5)
    after = torch.cat([torch.ones(4, 1), batch.filled], 1) == 0
    noisy = torch.where(after[..., None], torch.randn(batch.obs.shape, generator=g), batch.obs)
    other = dataclasses.replace(batch, obs=noisy)
    for one, two in zip(
        rac_loss(net, target, batch, CONTEXT, 0.9, 0.5).values(),
        rac_loss(net, target, other, CONTEXT, 0.9, 0.5).values(),
        strict=True,
    ):
        assert one == two


def test_a_step_limit_bootstraps_and_an_end_does_not():
    net, target = nets()
    batch = random_batch()
    ended = dataclasses.replace(batch, terminated=torch.ones_like(batch.terminated))
    error = td_error(net, target, ended, 0.9)
    values = net.behaviour(batch.obs)[0][:, :-1].gather(-1, batch.actions[..., None])[..., 0]
    assert torch.allclose(error, batch.rewards - values)
    assert not torch.allclose(error, td_error(net, target, batch, 0.9))


def test_contexts_must_agree_and_returns_be_finite():
    net, target = nets()
    with pytest.raises(ValueError, match="context: got 3 contexts, wants 4"):
        rac_loss(net, target, random_batch(), ReturnContext(0, 1, 3), 0.9, 1.0)
    with pytest.raises(ValueError, match="returns: got NaN"):
        rac_loss(net, target, random_batch(reward=float("nan")), CONTEXT, 0.9, 1.0)
