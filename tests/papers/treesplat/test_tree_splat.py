"""The model: rendering over time, merging, files, and what it refuses."""

from __future__ import annotations

import json
import math

import numpy as np
import plyfile
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.papers.treesplat.models import MOTIONS, camera, moving

from assay.papers.treesplat.motion_tree import MotionTree
from assay.papers.treesplat.motions import StaticMotion
from assay.papers.treesplat.ply import read_ply, write_ply
from assay.papers.treesplat.rasterizer import rasterize
from assay.papers.treesplat.tree_splat import SH_C0, SPLATS, TreeSplat

TIMES = (0.0, 0.4, 1.0)


def grown(dtype=torch.float32, **options):
    model = moving(dtype=dtype, **options)
    for growth in (model.motion.promote, model.motion.expand, model.motion.promote):
        idx = torch.arange(0, model.n, 3)
        growth(idx)
        for name in SPLATS:
            old = model.splats[name].detach()
            model.splats[name] = torch.nn.Parameter(torch.cat([old, old[idx]]))
    with torch.no_grad():
        model.motion.field_mu += 0.1 * torch.randn_like(model.motion.field_mu)
    return model


def image(model, t, dtype=torch.float32, **options):
    with torch.no_grad():
        return model.render(*camera(dtype=dtype), t, **options)[0]


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_picture_is_that_of_the_instants_gaussians(motion):
    model = moving(motion)
    for t in (*TIMES, None):
        still = model.at(t)
        assert torch.allclose(still["quats"].norm(dim=1), torch.ones(model.n))
        colors, alphas, _ = rasterize(
            still["means"],
            still["quats"],
            still["scales"].exp(),
            still["opacities"].sigmoid(),
            torch.cat([still["sh0"], still["shN"]], 1),
            *camera(),
            sh_degree=1,
            backgrounds=torch.tensor([[0.2, 0.4, 0.6]]),
            backend="cpu",
        )
        with torch.no_grad():
            rgb, alpha, meta = model.render(
                *camera(), t, backend="cpu", background=torch.tensor([0.2, 0.4, 0.6])
            )
        assert rgb.shape == (1, 32, 32, 3)
        assert alpha.shape == (1, 32, 32, 1)
        assert (rgb - colors).abs().max() < 1e-5
        assert (alpha - alphas).abs().max() < 1e-5
        assert meta["n_cameras"] == 1
        assert alpha.max() > 0.5


@pytest.mark.parametrize("motion", MOTIONS[1:])
def test_pictures_change_with_time_and_gradients_reach_everything(motion):
    model = grown() if motion == "tree" else moving(motion)
    assert (image(model, 0.1) - image(model, 0.9)).abs().max() > 0.01
    rgb, _, _ = model.render(*camera(), 0.3)
    rgb.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_still_model_does_not_change():
    model = moving("none")
    assert torch.equal(image(model, 0.1), image(model, 0.9))


def test_fewer_harmonics_and_depth():
    model = moving()
    assert torch.equal(image(model, 0.5, sh_degree=1), image(model, 0.5))
    assert not torch.equal(image(model, 0.5, sh_degree=0), image(model, 0.5))
    assert image(model, 0.5, render_mode="RGB+ED", background=torch.ones(3)).shape[-1] == 4
    assert image(model, 0.5, render_mode="D", background=torch.ones(3)).shape[-1] == 1


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_merging_changes_no_pixel(dtype, tolerance):
    model = grown(dtype)
    merged = model.merge()
    assert model.motion.depth() > 2
    for t in TIMES:
        a, b = image(model, t, dtype), image(merged, t, dtype)
        assert a.abs().max() > 0.1
        assert (a - b).abs().max() < tolerance
    with torch.no_grad():
        model.splats["means"] += 1
    assert (image(merged, 0.4, dtype) - b).abs().max() > 0
    assert (merged.splats["means"] - model.splats["means"]).abs().max() > 0.5


def test_what_cannot_be_merged_or_grown_says_so():
    for motion in ("none", "mlp", "polynomial"):
        with pytest.raises(TypeError, match="wants one with a basis to merge"):
            moving(motion).merge()
    merged = moving("flat").merge()
    with pytest.raises(RuntimeError, match="merged model has no tree"):
        merged.motion.expand([0])
    assert merged.merge(frames=3).motion.basis.table.shape[0] == 3


def test_first_gaussians_are_as_large_as_their_neighbours_are_far():
    grid = torch.stack(torch.meshgrid(*[torch.arange(3.0)] * 3, indexing="ij"), -1).view(-1, 3)
    model = TreeSplat.from_points(grid, torch.full((27, 3), 0.75))
    assert (model.n, model.sh_degree) == (27, 3)
    assert torch.allclose(model.splats["scales"].exp(), torch.ones(27, 3))
    assert torch.allclose(model.splats["opacities"].sigmoid(), torch.full((27,), 0.1))
    assert torch.allclose(0.5 + SH_C0 * model.splats["sh0"], torch.full((27, 1, 3), 0.75))
    assert model.extent == pytest.approx(math.sqrt(3))
    same = TreeSplat.from_points(torch.zeros(5, 3), motion="none")
    assert torch.isfinite(same.splats["scales"]).all()
    assert same.extent == 1
    assert TreeSplat.from_points([[1, 2, 3]], motion="flat").n == 1
    assert TreeSplat.from_points(np.zeros((2, 3))).splats["means"].dtype == torch.float64
    assert moving("mlp", extent=7.0).motion.scale == 7
    assert moving(octaves=3, max_depth=4).motion.max_depth == 4


def test_params_are_those_of_the_model():
    model = moving()
    params = model.params
    assert list(params) == [*SPLATS, "field_mu", "field_quat", "beta_logit"]
    assert len(params) == 9
    assert params["field_mu"] is model.motion.field_mu
    for name in ("means", "field_mu"):
        params[name] = torch.nn.Parameter(torch.zeros_like(params[name]))
    assert not model.splats["means"].any()
    assert not model.motion.field_mu.any()
    every = {id(p) for p in [*params.values(), *model.shared_parameters()]}
    assert every == {id(p) for p in model.parameters()}
    with pytest.raises(KeyError):
        params["nonsense"] = torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(TypeError, match="cannot be taken away"):
        del params["means"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("motion", [*MOTIONS, "merged", "table", "root", "one"])
def test_files_give_back_every_bit(tmp_path, motion, dtype):
    if motion in ("merged", "table"):
        model = grown(dtype).merge(frames=5 if motion == "table" else None)
    elif motion == "one":
        model = grown(dtype, shared_field=True).merge()
    elif motion == "root":
        model = grown(dtype, init="root", shared_field=True, decay=False, max_depth=5)
    else:
        model = grown(dtype) if motion == "tree" else moving(motion, dtype=dtype, sh_degree=0)
    model.save(tmp_path / "model.safetensors")
    again = TreeSplat.load(tmp_path / "model.safetensors")
    assert type(again.motion) is type(model.motion)
    assert (again.extent, again.sh_degree) == (model.extent, model.sh_degree)
    assert again.motion.options() == model.motion.options()
    mine, theirs = model.state_dict(), again.state_dict()
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert value.dtype == theirs[name].dtype
        assert torch.equal(value, theirs[name]), name
    assert torch.equal(image(model, 0.3, dtype), image(again, 0.3, dtype))
    if isinstance(again.motion, MotionTree):
        again.motion.promote([0, 1])
        again.motion.check()


def test_a_file_holds_what_bytes_per_gaussian_counts(tmp_path):
    model = grown()
    size = model.bytes_per_gaussian()
    assert size["static"] == 44
    assert size["color"] == 4 * 12
    nodes = model.motion.n_nodes / model.n
    assert size["motion"] == pytest.approx(nodes * (4 * 2 * 4 + 4) + 4 + 4)
    assert model.merge().bytes_per_gaussian()["motion"] == 4 * 2 * 4
    assert grown(shared_field=True).merge().bytes_per_gaussian()["motion"] == 4 * 4
    model.save(tmp_path / "model.safetensors")
    stored = (tmp_path / "model.safetensors").stat().st_size
    assert 0 < stored - size["total"] * model.n < 4000  # the header


def rewritten(source, target, change=lambda about, tensors: None, about=...):
    with safe_open(source, "pt") as file:
        found = json.loads(file.metadata()["treesplat"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(found, tensors)
    text = json.dumps(found) if about is ... else about
    save_file(tensors, target, None if text is None else {"treesplat": text})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, t: a.update(sh_degree=3), "sh_degree: says 3"),
        (lambda a, t: a.update(motion="flat"), "does not fit"),
        (lambda a, t: a.update(motion="wind"), "motion: got 'wind'"),
        (lambda a, t: a.update(format="other"), "no TreeSplat model"),
        (lambda a, t: t.pop("splats.means"), "splats.means"),
        (lambda a, t: t.pop("motion.field_mu"), "field_mu"),
        (lambda a, t: t.update({"splats.quats": t["splats.quats"][:3]}), "quats: got shape"),
        (lambda a, t: t["motion.parent"].fill_(0), "cycle"),
        (lambda a, t: t["motion.parent"].fill_(999), "no node"),
        (lambda a, t: t["motion.entry"].fill_(1), "leaf|inner"),
        (lambda a, t: a["options"].update(max_depth=1), "longer than 1"),
        (lambda a, t: a["options"].update(speed=1), "speed"),
        (lambda a, t: a["options"].update(max_depth=10**9) or t["motion.parent"].fill_(0), "cycle"),
        (lambda a, t: a["options"]["basis"].update(layers=10**9), "layers: got 10000"),
        (lambda a, t: a["options"]["basis"].update(width=10**9), "got shape .* as the options say"),
        (lambda a, t: a["options"]["basis"].update(width=10**99), "does not fit"),
        (lambda a, t: a.update(options=[]), "does not fit"),
        (lambda a, t: t["motion.beta_logit"].fill_(math.nan), "beta_logit: .* not finite"),
        (lambda a, t: t.update({"motion.entry": t["motion.entry"] + 0.5}), "entry: got .*float32"),
        (lambda a, t: t.update({"splats.quats": t["splats.quats"].double()}), "quats: got .*64"),
        (lambda a, t: t.update({"splats.sh0": t["splats.sh0"] * 1j}), "sh0: got torch.complex64"),
    ],
)
def test_files_that_do_not_fit(tmp_path, change, message):
    path, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    grown().save(path)
    rewritten(path, other, change)
    with pytest.raises(ValueError, match=message) as caught:
        TreeSplat.load(other)
    assert str(other) in str(caught.value)


def test_damaged_and_foreign_files(tmp_path):
    path = tmp_path / "model.safetensors"
    moving().save(path)
    content = path.read_bytes()
    other = tmp_path / "other.safetensors"
    for damaged in (b"", content[:20], content[:-10], b"hello world, this is text"):
        other.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged, or no safetensors file"):
            TreeSplat.load(other)
    rewritten(path, other, about="[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        TreeSplat.load(other)
    for about in (None, "[]", "{}", '{"format": 3}'):
        rewritten(path, other, about=about)
        with pytest.raises(ValueError, match="no TreeSplat model"):
            TreeSplat.load(other)
    rewritten(path, other, about='{"format": "assay.treesplat/1"}')
    with pytest.raises(ValueError, match="does not fit"):
        TreeSplat.load(other)
    with pytest.raises(FileNotFoundError):
        TreeSplat.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        moving().save(tmp_path / "no" / "folder")


def test_a_grown_state_loads_into_a_model_that_has_not_grown():
    model, fresh = grown(), moving(n=5)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(image(model, 0.3), image(fresh, 0.3))
    with pytest.raises(RuntimeError, match="size mismatch"):
        moving(n_basis=3).load_state_dict(model.state_dict())


@pytest.mark.parametrize("degree", [0, 1, 3])
def test_ply_files_are_those_of_3dgs(tmp_path, degree):
    model = moving(sh_degree=degree)
    with torch.no_grad():
        model.splats["shN"] += torch.randn_like(model.splats["shN"])
    path = tmp_path / "instant.ply"
    model.export_ply(path, 0.4)
    content = path.read_bytes()
    assert content.startswith(b"ply\nformat binary_little_endian 1.0\n")
    vertices = plyfile.PlyData.read(path)["vertex"]
    rest = 3 * ((degree + 1) ** 2 - 1)
    assert [p.name for p in vertices.properties] == [
        *["x", "y", "z", "nx", "ny", "nz"],
        *[f"f_dc_{i}" for i in range(3)],
        *[f"f_rest_{i}" for i in range(rest)],
        "opacity",
        *[f"scale_{i}" for i in range(3)],
        *[f"rot_{i}" for i in range(4)],
    ]
    still = model.at(0.4)
    assert vertices.count == model.n
    assert np.array_equal(vertices["y"], still["means"][:, 1])
    assert np.array_equal(vertices["rot_0"], still["quats"][:, 0])
    assert np.array_equal(vertices["f_dc_2"], still["sh0"][:, 0, 2])
    if degree:  # all harmonics of red, then of green, then of blue
        per = rest // 3
        assert np.array_equal(vertices[f"f_rest_{per + 1}"], still["shN"][:, 1, 1])
    for name, value in read_ply(path).items():
        assert torch.equal(value, still[name]), name


def test_a_sequence_is_a_file_for_each_time(tmp_path):
    model = moving()
    paths = model.export_sequence(tmp_path / "new" / "folder", np.linspace(0, 1, 3))
    assert [path.name for path in paths] == ["0000.ply", "0001.ply", "0002.ply"]
    assert torch.equal(read_ply(paths[1])["means"], model.at(0.5)["means"])
    with pytest.raises(ValueError, match=r"t: got 1\.5"):
        moving().export_sequence(tmp_path / "late", [0.0, 1.5])
    assert not (tmp_path / "late").exists()
    with pytest.raises(ValueError, match="times: got none"):
        model.export_sequence(tmp_path, [])


def test_no_ply_is_written_of_nothing_or_of_what_is_not_finite(tmp_path):
    model, path = moving(), tmp_path / "a.ply"
    none = {name: value[:0] for name, value in model.at(0).items()}
    with pytest.raises(ValueError, match="no Gaussians"):
        write_ply(path, none)
    with torch.no_grad():
        model.splats["opacities"][3] = math.nan
    with pytest.raises(ValueError, match="1 of 40 Gaussians are not finite"):
        model.export_ply(path, 0.0)
    with pytest.raises(ValueError, match="t: got nan"):
        moving().export_ply(path, math.nan)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no ply",
        b"ply\nformat binary_little_endian 1.0\nelement vertex 2\nproperty float x\nend_header\n",
        b"ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nend_header\n",
        b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float f_rest_0\nend_header\n0\n",
        b"ply\nformat ascii 1.0\nelement vertex 999999999999999\nproperty int x\nend_header\n",
    ],
)
def test_files_that_are_no_ply_of_gaussians(tmp_path, content):
    path = tmp_path / "a.ply"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="no PLY file of Gaussians"):
        read_ply(path)


@pytest.mark.parametrize("t", [-0.1, 1.1, math.nan, -math.inf])
@pytest.mark.parametrize("motion", MOTIONS)
def test_times_outside_are_refused(motion, t):
    model = moving(motion, n=3)
    for look in (model.at, lambda t: model.render(*camera(8), t)):
        with pytest.raises(ValueError, match="t: got"):
            look(t)


def splats(**changes):
    return {**moving(n=4).at(0.0), **changes}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TreeSplat({"means": torch.zeros(1, 3)}, StaticMotion(1)), "quats, scales"),
        (lambda: TreeSplat(splats(), StaticMotion(5)), "motion: got one of 5 Gaussians, wants 4"),
        (lambda: TreeSplat(splats(quats=torch.zeros(4, 3)), StaticMotion(4)), "quats: got shape"),
        (lambda: TreeSplat(splats(shN=torch.zeros(4, 5, 3)), StaticMotion(4)), "shN: got 5"),
        (lambda: TreeSplat(splats(shN=torch.zeros(4, 9)), StaticMotion(4)), "shN: got shape"),
        (lambda: TreeSplat(splats(), StaticMotion(4), extent=0.0), "extent: got 0"),
        (lambda: TreeSplat.from_points(torch.zeros(0, 3)), "points: got shape"),
        (lambda: TreeSplat.from_points(torch.zeros(4, 2)), "points: got shape"),
        (lambda: TreeSplat.from_points(torch.full((4, 3), math.nan)), "points: got values"),
        (lambda: TreeSplat.from_points(torch.zeros(4, 3), torch.zeros(3, 3)), "colors: wants 4"),
        (
            lambda: TreeSplat.from_points(torch.zeros(4, 3), torch.full((4, 3), 255)),
            "colors: wants",
        ),
        (lambda: TreeSplat.from_points(torch.zeros(4, 3), motion="wind"), "motion: got 'wind'"),
        (lambda: TreeSplat.from_points(torch.zeros(4, 3), sh_degree=4), "sh_degree: got 4"),
        (lambda: TreeSplat.from_points(torch.zeros(4, 3), max_depth=0), "max_depth: got 0"),
        (
            lambda: moving().render(*camera(8), 0.5, sh_degree=2),
            "sh_degree: got 2, wants at most 1",
        ),
        (
            lambda: moving().render(*camera(8), 0.5, background=torch.ones(4)),
            r"background: got shape \(4,\), wants \(3,\) or \(1, 3\)",
        ),
        (
            lambda: moving().render(*camera(8), 0.5, backgrounds=torch.ones(1, 3)),
            "got 'backgrounds', wants one of background, near_plane",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_points_that_are_no_numbers():
    with pytest.raises(TypeError, match="points: got no numbers"):
        TreeSplat.from_points("cloud")


def test_half_precision_around_it_changes_no_pixel():
    model = grown()
    expected, _, _ = model.render(*camera(8), 0.5)
    with torch.autocast("cpu", torch.bfloat16):
        found, _, _ = model.render(*camera(8), 0.5)
    assert torch.equal(found, expected)


def test_repr():
    assert "40 Gaussians, sh_degree=1" in repr(moving())
