"""Posteriors of posteriordb, on a Stan model that is written out here instead of compiled."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from assay.papers.multalmc.baselines import ula
from assay.papers.multalmc.target import Target, as_target
from assay.papers.multalmc.targets import posteriordb_target
from assay.papers.multalmc.targets.posteriordb import StanPosterior

DATA = {"y": [1.0, 3.0, -2.0]}
DRAWS = [{"mu": [0.5, 0.6], "tau": [1.0, 2.0]}, {"mu": [0.7, 0.8], "tau": [3.0, 4.0]}]


class StanModel:
    """``y ~ N(mu, tau)``, ``mu ~ N(0, 1)``, ``tau > 0``, with the methods of bridgestan's."""

    def __init__(self, model_lib, data):
        self.model_lib = model_lib
        self.y = np.array(json.loads(data)["y"])

    def param_unc_num(self):
        return 2

    def param_names(self, *, include_tp=False):
        return ["mu", "tau", "z.1.1", "z.1.2"] if include_tp else ["mu", "tau"]

    def param_constrain(self, theta, *, include_tp=False):
        mu, tau = theta[0], self._tau(theta)
        return np.array([mu, tau, mu - tau, mu + tau] if include_tp else [mu, tau])

    def log_density(self, theta, *, propto=True, jacobian=True):
        return self.log_density_gradient(theta, propto=propto, jacobian=jacobian)[0]

    @np.errstate(all="ignore")
    def log_density_gradient(self, theta, *, propto=True, jacobian=True):
        assert theta.dtype == np.float64
        assert theta.flags.c_contiguous
        (mu, log_tau), z = theta, (self.y - theta[0]) / self._tau(theta)
        value = -0.5 * (z @ z) - len(z) * log_tau - 0.5 * mu**2 + jacobian * log_tau
        gradient = [z.sum() / np.exp(log_tau) - mu, z @ z - len(z) + jacobian]
        constant = 0.5 * (len(z) + 1) * math.log(2 * math.pi)
        return value - (0 if propto else constant), np.array(gradient)

    def _tau(self, theta):
        if theta[1] > 50:
            raise RuntimeError("normal_lpdf: Scale parameter is inf")
        return np.exp(theta[1])


@pytest.fixture
def target():
    return StanPosterior(StanModel("normal.stan", json.dumps(DATA)), lambda: DRAWS)


def points(n=20):
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def log_posterior(x):
    """What `StanModel` says, in torch."""
    mu, log_tau = x.T
    likelihood = (
        Normal(mu[:, None], log_tau.exp()[:, None]).log_prob(torch.tensor(DATA["y"])).sum(1)
    )
    return likelihood + Normal(0.0, 1.0).log_prob(mu) + log_tau


def test_density_and_score_are_those_of_the_model_with_its_jacobian(target):
    x = points().requires_grad_()
    expected = log_posterior(x)
    (score,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(target.log_prob(x), expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(target.score(x), score, rtol=1e-12, atol=1e-12)
    single = x.detach().T.contiguous().T.float()  # rows that do not lie together
    assert target.score(single).dtype == target.log_prob(single).dtype == torch.float32
    torch.testing.assert_close(target.score(single).double(), score, rtol=1e-4, atol=1e-4)


def test_constrained_parameters_have_the_names_of_reference_draws(target):
    x = points()
    found = target.constrain(x)
    assert list(found) == ["mu", "tau", "z[1,1]", "z[1,2]"]
    torch.testing.assert_close(found["tau"], x[:, 1].exp())
    torch.testing.assert_close(found["z[1,2]"], x[:, 0] + x[:, 1].exp())
    draws = target.reference_draws
    assert {name: values.tolist() for name, values in draws.items()} == {
        "mu": [0.5, 0.6, 0.7, 0.8],
        "tau": [1.0, 2.0, 3.0, 4.0],
    }
    assert StanPosterior(target._model).reference_draws is None


def test_a_point_that_stan_refuses_costs_only_itself(target):
    x = points(3)
    x[1, 1] = 60.0
    assert target.log_prob(x).isneginf().tolist() == [False, True, False]
    for values in (target.score(x), torch.stack(list(target.constrain(x).values()), 1)):
        assert values.isnan().all(1).tolist() == [False, True, False]
        assert values[[0, 2]].isfinite().all()


def test_samplers_take_it(target):
    assert isinstance(target, Target)
    as_target(target).check(points())
    draws = ula(target, 50, n_evaluations=20, step_size=1e-4, generator=torch.Generator())
    assert draws.finite_mask.all()
    assert draws.n_grad == 20


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with ZipFile(path, "w") as archive:
            archive.writestr(path.stem, json.dumps(content))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def checkout(tmp_path):
    """What a checkout of posteriordb has, with two posteriors of one model and data."""
    root = tmp_path / "posterior_database"
    for name, reference in (("y-normal", "y-normal"), ("y-undrawn", None)):
        info = {"model_name": "normal", "data_name": "y", "reference_posterior_name": reference}
        write(root / f"posteriors/{name}.json", {"name": name, **info})
    code = {"model_code": "models/stan/normal.stan", "stan_version": ">=2.26.0"}
    write(root / "models/info/normal.info.json", {"model_implementations": {"stan": code}})
    write(root / "models/stan/normal.stan", "model {}")
    write(root / "data/info/y.info.json", {"data_file": "data/data/y.json"})
    write(root / "data/data/y.json.zip", DATA)
    draws = root / "reference_posteriors/draws"
    write(draws / "info/y-normal.info.json", {"name": "y-normal"})
    write(draws / "draws/y-normal.json.zip", DRAWS)
    return tmp_path


def test_loads_from_a_checkout(checkout, monkeypatch):
    pytest.importorskip("posteriordb")
    monkeypatch.setitem(sys.modules, "bridgestan", SimpleNamespace(StanModel=StanModel))
    target = posteriordb_target(checkout, "y-normal")
    x = points()
    torch.testing.assert_close(target.log_prob(x), log_posterior(x), rtol=1e-12, atol=1e-12)
    assert target._model.model_lib.endswith("models/stan/normal.stan")
    assert target.reference_draws["tau"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert posteriordb_target(checkout / "posterior_database", "y-undrawn").reference_draws is None


@pytest.mark.parametrize("package", ["bridgestan", "posteriordb"])
def test_says_what_to_install(checkout, monkeypatch, package):
    monkeypatch.setitem(sys.modules, "bridgestan", SimpleNamespace(StanModel=StanModel))
    monkeypatch.setitem(sys.modules, "posteriordb", SimpleNamespace(PosteriorDatabase=None))
    monkeypatch.setitem(sys.modules, package, None)
    hint = rf"{package}: not installed; pip install 'assay\[multalmc-posteriordb\]'"
    with pytest.raises(ModuleNotFoundError, match=hint):
        posteriordb_target(checkout, "y-normal")


def test_refuses_what_is_not_there(checkout, tmp_path):
    with pytest.raises(ValueError, match=r"path: got .*nowhere', wants a checkout of posteriordb"):
        posteriordb_target(tmp_path / "nowhere", "y-normal")
    with pytest.raises(ValueError, match=r"name: got 'y-norml', wants .* such as .'y-normal'"):
        posteriordb_target(checkout, "y-norml")
