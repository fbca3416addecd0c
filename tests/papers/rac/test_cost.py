"""The comparison of update costs does what it says; how fast is for the study to measure."""

from __future__ import annotations

import math

import pytest
import torch
from tests.papers.rac.batches import random_batch

from assay.papers.rac.context import ReturnContext
from assay.papers.rac.cost import _ByPasses, update_cost
from assay.papers.rac.methods import RAC

SMALL = {"obs_dim": 3, "n_actions": 2, "hidden": 8, "steps": 3, "episodes": 4, "repeats": 3}


def test_every_arm_is_timed_against_iql():
    found = update_cost([1, 4], passes=[4], **SMALL)
    for arm in ("rac_1", "rac_4", "passes_4"):
        ratio, own = found[f"{arm}_ratio"], found[f"{arm}_s"]
        assert math.isnan(own) == math.isnan(ratio)
        assert math.isnan(own) or ratio == own / found["iql_s"]
    assert found["rounds"] >= 1


@pytest.mark.parametrize("head", ["hyper", "concat"])
def test_the_arm_of_many_passes_learns_the_same(head):
    losses = []
    for kind in (RAC, _ByPasses):
        method = kind(context=ReturnContext(-2, 2, 5), context_head=head)
        torch.manual_seed(0)
        net, target = method.network(3, 3, 8, True), method.network(3, 3, 8, True)
        losses.append(method.loss(net, target, random_batch())["loss"])
    assert torch.allclose(*losses)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="ms: got 0"):
        update_cost([0], **SMALL)
    with pytest.raises(ValueError, match="repeats: got 0"):
        update_cost([1], **{**SMALL, "repeats": 0})
