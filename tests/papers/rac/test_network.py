"""The networks, against one pass for each context."""

from __future__ import annotations

import pytest
import torch

from assay.papers.rac.network import I2QNet, QNet, RACNet, best_action, optimistic, stack
from assay.papers.rac.reference import contextual_by_passes


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("head", ["hyper", "concat"])
@pytest.mark.parametrize("contexts", [1, 4, 7])
def test_all_contexts_at_once_equal_a_pass_for_each(recurrent, head, contexts):
    torch.manual_seed(0)
    net = RACNet(5, 3, contexts, hidden=16, recurrent=recurrent, context_head=head)
    obs = torch.randn(2, 6, 5)
    h = torch.randn(2, 16) if recurrent else None
    fast, _ = net.contextual(obs, h)
    slow = contextual_by_passes(net, obs, h)
    assert fast.shape == (2, 6, contexts, 3)
    assert (fast - slow).abs().max() < 1e-6
    assert (net.heads(net.context_trunk(obs, h)[0]) == fast).all()

    weights = torch.randn_like(fast)
    grads = []
    for values in (fast, slow):
        net.zero_grad()
        (values * weights).sum().backward()
        grads.append(
            {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
        )
    assert grads[0].keys() == grads[1].keys()
    for name, grad in grads[0].items():
        assert torch.allclose(grad, grads[1][name], atol=1e-5), name


def test_a_gru_keeps_its_state_between_calls():
    net = RACNet(4, 2, 3, hidden=8)
    obs = torch.randn(3, 5, 4)
    for values in (net.behaviour, net.contextual, net.marginal):
        whole, last = values(obs)
        first, h = values(obs[:, :2])
        second, end = values(obs[:, 2:], h)
        assert torch.allclose(torch.cat([first, second], 1), whole, atol=1e-6)
        assert torch.allclose(end, last, atol=1e-6)


def test_phi_is_the_largest_over_contexts_without_gradient():
    net = RACNet(4, 3, 5, hidden=8)
    obs = torch.randn(2, 3, 4)
    phi, _ = net.marginal(obs)
    with torch.no_grad():  # with gradients the GRU rounds otherwise
        values, _ = net.contextual(obs)
    assert (phi.unsqueeze(-2) >= values).all()
    assert (phi.unsqueeze(-2) == values).any(-2).all()
    assert not phi.requires_grad


def test_a_mask_and_a_support_leave_actions_out_of_phi():
    net = RACNet(4, 3, 2, hidden=8)
    obs = torch.randn(1, 1, 4)
    values, _ = net.contextual(obs)
    support = torch.tensor([[[[True, False, False], [True, True, False]]]])
    mask = torch.tensor([[[False, True, True]]])
    phi, _ = net.marginal(obs, mask=mask, support=support)
    assert phi[0, 0].tolist() == [-torch.inf, values[0, 0, 1, 1].item(), -torch.inf]
    assert optimistic(values, support)[0, 0, 0] == values[0, 0, :, 0].max()
    assert best_action(phi, mask).item() == 1


def test_the_best_action_is_an_available_one():
    values = torch.tensor([[5.0, 1.0, 2.0], [5.0, -9.0, -9.0]])
    mask = torch.tensor([[False, True, True], [False, True, False]])
    assert best_action(values, mask).tolist() == [2, 1]


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="n_contexts: got 0"):
        RACNet(4, 3, 0)
    with pytest.raises(ValueError, match="context_head: got 'film'"):
        RACNet(4, 3, 2, context_head="film")
    with pytest.raises(TypeError, match=r"hidden: got 2\.5"):
        QNet(4, 3, hidden=2.5)


@pytest.mark.parametrize("head", ["hyper", "concat"])
def test_stacked_networks_compute_what_each_does(head):
    torch.manual_seed(0)
    nets = [RACNet(5, 3, 4, 8, recurrent=False, context_head=head) for _ in range(6)]
    stacked = stack(nets)
    obs = torch.randn(6, 2, 7, 5)
    for name in ("behaviour", "contextual", "marginal"):
        together, _ = getattr(stacked, name)(obs)
        alone = torch.stack([getattr(net, name)(x)[0] for net, x in zip(nets, obs, strict=True)])
        assert torch.allclose(together, alone, atol=1e-6), name
    i2q = [I2QNet(5, 3, 8, recurrent=False, width=4) for _ in range(6)]
    both = stack(i2q)
    features = both.features(obs)
    for net, x, x2, q, v in zip(
        i2q,
        obs,
        features,
        both.transition_value(features, features),
        both.state_value(features),
        strict=True,
    ):
        assert torch.allclose(net.features(x), x2, atol=1e-6)
        assert torch.allclose(net.transition_value(x2, x2), q, atol=1e-6)
        assert torch.allclose(net.state_value(x2), v, atol=1e-6)
    with pytest.raises(ValueError, match="nets: wants"):
        stack([QNet(5, 3)])
