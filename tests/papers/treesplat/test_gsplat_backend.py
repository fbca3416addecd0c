"""The choice of a backend, and gsplat's own kernels where there is a GPU."""

from __future__ import annotations

import sys
import types
import warnings

import pytest
import torch
from tests.papers.treesplat.gaussians import LEARNED, gradients, random_scene

from assay.papers.treesplat import gsplat_backend, rasterize

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def fresh():
    gsplat_backend.cuda_fault.cache_clear()
    gsplat_backend._warn_once.cache_clear()
    yield
    gsplat_backend.cuda_fault.cache_clear()


def gpu_with(monkeypatch, build):
    """A machine whose GPU torch sees and for which gsplat builds `build`."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    module = types.ModuleType("gsplat.cuda._backend")
    module.__getattr__ = lambda name: build()  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "gsplat.cuda._backend", module)


def broken():
    raise RuntimeError("Error building extension\nglm/glm.hpp: No such file or directory")


def test_tensors_on_the_cpu_are_rasterised_there_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gsplat_backend.choose("auto", CPU, torch.float32) == "cpu"


def test_gsplat_is_chosen_where_it_runs(monkeypatch):
    gpu_with(monkeypatch, object)
    assert gsplat_backend.choose("auto", CUDA, torch.float32) == "gsplat"
    assert gsplat_backend.choose("gsplat", CUDA, torch.float32) == "gsplat"
    assert gsplat_backend.choose("reference", CUDA, torch.float32) == "reference"


@pytest.mark.parametrize(
    ("build", "cause"),
    [(broken, "could not be built: glm/glm.hpp: No such file"), (lambda: None, "no CUDA toolkit")],
)
def test_auto_falls_back_with_one_warning_that_gives_the_cause(monkeypatch, build, cause):
    gpu_with(monkeypatch, build)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = [gsplat_backend.choose("auto", CUDA, torch.float32) for _ in range(3)]
    assert chosen == ["cpu"] * 3
    assert len(caught) == 1
    assert cause in str(caught[0].message)
    with pytest.raises(RuntimeError, match=f"backend: 'gsplat' cannot run, as .*{cause}"):
        gsplat_backend.choose("gsplat", CUDA, torch.float32)


def test_double_precision_falls_back_too(monkeypatch):
    gpu_with(monkeypatch, object)
    with pytest.warns(UserWarning, match="float64, and gsplat takes torch.float32"):
        assert gsplat_backend.choose("auto", CUDA, torch.float64) == "cpu"


def test_gsplat_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    scene = random_scene(n=3, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="'gsplat' cannot run, as torch sees no CUDA device"):
        rasterize(**scene, backend="gsplat")


def test_gsplat_takes_tensors_on_a_gpu_only(monkeypatch):
    gpu_with(monkeypatch, object)
    with pytest.raises(RuntimeError, match="the tensors are on cpu"):
        gsplat_backend.choose("gsplat", CPU, torch.float32)


@pytest.mark.parametrize("mode", ["RGB", "RGB+ED"])
@pytest.mark.parametrize("kind", ["classic", "antialiased"])
def test_our_kernels_agree_with_gsplats_on_a_gpu(mode, kind):
    if gsplat_backend.cuda_fault():
        pytest.skip(f"no cross-check: {gsplat_backend.cuda_fault()}")
    scene = random_scene(2000, (128, 128), 2, 16, scale=0.05, dtype=torch.float32)
    options = {"sh_degree": 3, "render_mode": mode, "rasterize_mode": kind}
    ours = gradients(scene, backend="cpu", **options)
    there = {k: x.cuda() if isinstance(x, torch.Tensor) else x for k, x in scene.items()}
    theirs = gradients(there, backend="gsplat", **options)
    for name in ("images", "alphas"):
        assert (ours[name] - theirs[name].cpu())[..., :3].abs().max() < 2e-3, name
    for name in (*LEARNED, "means2d"):
        cosine = torch.cosine_similarity(ours[name].ravel(), theirs[name].cpu().ravel(), 0)
        assert cosine > 0.999, name
