"""Compiled steps are the eager ones: same draws, same results, few graphs."""

from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from assay.papers.multalmc.base import StudentT
from assay.papers.multalmc.multalmc import MultALMC
from assay.papers.multalmc.multcdiff import MultCDiff
from assay.papers.multalmc.targets.mixtures import forty_gaussians, ten_students

GAUSSIANS, STUDENTS = forty_gaussians(3), ten_students(3)


def run(sampler, target, n=8, **options):
    generator = torch.Generator().manual_seed(0)
    return sampler(target, n_steps=40, generator=generator, **options).sample(
        n, dtype=torch.float64
    )


def same(sampler, target, **options):
    plain, ours = (run(sampler, target, compile=on, **options) for on in (False, True))
    torch.testing.assert_close(ours.samples, plain.samples, atol=1e-8, rtol=1e-8)
    assert (ours.n_grad, ours.n_logp) == (plain.n_grad, plain.n_logp)


@pytest.fixture(autouse=True)
def validation():
    """torch.compile turns the validation of torch.distributions off, for the whole process."""
    yield
    torch.distributions.Distribution.set_default_validate_args(True)


@pytest.fixture
def traced(monkeypatch):
    """The graphs of each step are run as they are, which spares the C++ compiler's time."""
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    yield lambda: counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


@pytest.mark.parametrize("dynamics", ["underdamped", "overdamped"])
def test_every_phase_is_one_graph_whatever_the_numbers(traced, dynamics):
    for step_size, eps in ((0.01, 0.1), (0.02, 0.3), (0.015, 0.2)):
        options = {"step_size": step_size, "eps": eps, "lambda_delta": 0.05}
        same(MultALMC, GAUSSIANS, dynamics=dynamics, **options)
    assert traced() == (3 if dynamics == "underdamped" else 2 + 1)
    for n in (5, 9, 12):
        run(MultALMC, GAUSSIANS, n, compile=True, dynamics=dynamics, **options)
    assert traced() == 6, "and one more for all other numbers of chains"


@pytest.mark.parametrize("dynamics", ["underdamped", "overdamped"])
def test_multcdiff_is_one_graph(traced, dynamics):
    for eps in (8.0, 9.0):
        same(MultCDiff, GAUSSIANS, eps=eps, dynamics=dynamics)
    assert traced() == 1


@pytest.mark.parametrize("fast", ["langevin", "ito"])
def test_heavy_tails(traced, fast):
    same(MultALMC, STUDENTS, step_size=0.001, base=StudentT(2.0), fast=fast)


def test_a_log_density_alone_is_differentiated_in_the_graph(traced):
    same(MultALMC, lambda x: -x.square().sum(1) / 2, dim=2, step_size=0.01)


@pytest.mark.slow
def test_torchs_own_compiler_gives_the_same():
    """The default backend, with changing numbers: early, late and last steps, and MultCDiff's."""
    options = {"step_size": 0.02, "lambda_delta": 0.05, "srock_stages": 2}
    same(MultALMC, GAUSSIANS, **options)
    same(MultCDiff, GAUSSIANS, eps=8.0, dynamics="overdamped", srock_stages=2)
