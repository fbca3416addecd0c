"""The rasteriser against closed forms, central differences and the dense reference."""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.papers.treesplat.gaussians import LEARNED, gradients, random_scene

from assay.papers.treesplat import rasterize
from assay.papers.treesplat.kernels import threads

FRONT = {
    "quats": torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
    "viewmats": torch.eye(4)[None],
    "Ks": torch.tensor([[[40.0, 0, 16], [0, 40.0, 16], [0, 0, 1]]]),
    "width": 32,
    "height": 32,
    "backend": "cpu",
}
"""A camera at the origin that looks along z."""


def on_axis(
    depths: list[float], opacities: list[float], colors: list[list[float]], **options: Any
) -> Any:
    n = len(depths)
    means = torch.zeros(n, 3)
    means[:, 2] = torch.tensor(depths)
    return rasterize(
        means=means,
        scales=torch.full((n, 3), 0.2),
        opacities=torch.tensor(opacities),
        colors=torch.tensor(colors),
        **{**FRONT, "quats": FRONT["quats"].repeat(n, 1), **options},
    )


def closed_form(depth: float, opacity: float) -> torch.Tensor:
    centres = torch.arange(32) + 0.5 - 16
    squared = centres**2 + centres[:, None] ** 2
    alpha = opacity * torch.exp(-squared / (2 * ((40 * 0.2 / depth) ** 2 + 0.3)))
    return torch.where(alpha < 1 / 255, 0.0, alpha)


def same(found: dict[str, Any], wanted: dict[str, Any], tolerance: float = 1e-9) -> None:
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        if x is None:
            assert found[name] is None or not found[name].any(), name
        else:
            error = (found[name] - x).norm() / x.norm().clamp(min=1e-12)
            assert error < tolerance, f"{name}: {error}"


def both(scene: dict[str, Any], tolerance: float = 1e-9, **options: Any) -> None:
    wanted = gradients(scene, backend="reference", **options)
    same(gradients(scene, backend="cpu", **options), wanted, tolerance)


def test_one_gaussian_is_its_closed_form():
    image, alpha, meta = on_axis([4.0], [0.8], [[1.0, 0.5, 0.25]])
    wanted = closed_form(4.0, 0.8)
    assert (alpha[0, ..., 0] - wanted).abs().max() < 1e-5
    assert (image[0, ..., 1] - 0.5 * wanted).abs().max() < 1e-5
    assert meta["means2d"].tolist() == [[[16.0, 16.0]]]
    assert meta["depths"].tolist() == [[4.0]]


def test_two_gaussians_composite_front_to_back_whatever_their_order():
    near, far = closed_form(3.0, 0.6), closed_form(5.0, 0.9)
    image, alpha, _ = on_axis([5.0, 3.0], [0.9, 0.6], [[0.0, 1.0], [1.0, 0.0]])
    assert (image[0, ..., 0] - near).abs().max() < 1e-5
    assert (image[0, ..., 1] - far * (1 - near)).abs().max() < 1e-5
    assert (alpha[0, ..., 0] - (1 - (1 - near) * (1 - far))).abs().max() < 1e-5


def test_alpha_is_capped_and_a_full_pixel_takes_no_more():
    centred = torch.tensor([[[40.0, 0, 16.5], [0, 40.0, 16.5], [0, 0, 1]]])
    red, green = [1.0, 0.0], [0.0, 1.0]
    _, alpha, _ = on_axis([3.0], [1.0], [red], Ks=centred)
    assert alpha[0, 16, 16].item() == pytest.approx(0.999, abs=1e-6)
    # After the third 1.25e-4 is left; the fourth would leave less than 1e-4.
    depths = [3.0, 3.1, 3.2, 3.3]
    image, alpha, _ = on_axis(depths, [0.95] * 4, [red, red, red, green], Ks=centred)
    assert image[0, 16, 16].tolist() == pytest.approx([1 - 0.05**3, 0.0], abs=1e-6)
    assert alpha[0, 16, 16].item() == pytest.approx(1 - 0.05**3, abs=1e-6)


@pytest.mark.parametrize("mode", ["RGB", "D", "ED", "RGB+D", "RGB+ED"])
@pytest.mark.parametrize("kind", ["classic", "antialiased"])
def test_values_and_gradients_match_the_dense_reference(mode, kind):
    background = torch.rand(2, 3, dtype=torch.float64)
    both(
        random_scene(cameras=2, size=(37, 29)),
        render_mode=mode,
        rasterize_mode=kind,
        backgrounds=background,
    )


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_spherical_harmonics_match_the_dense_reference(degree):
    both(random_scene(cameras=2, coefficients=16), sh_degree=degree)


@pytest.mark.parametrize("channels", [1, 5])
def test_any_number_of_channels_and_colors_of_each_camera(channels):
    scene = random_scene(cameras=2)
    scene["colors"] = torch.rand(2, 50, channels, dtype=torch.float64)
    both(scene)


def test_coefficients_of_each_camera():
    scene = random_scene(cameras=2)
    scene["colors"] = torch.randn(2, 50, 9, 3, dtype=torch.float64)
    both(scene, sh_degree=1)


def test_opaque_and_large_gaussians_match_where_pixels_fill_up():
    scene = random_scene(n=120, scale=0.4, seed=3)
    scene["opacities"] = scene["opacities"].clamp(min=0.9)
    both(scene, 1e-7)


def test_gaussians_beside_the_image_and_near_the_camera_match():
    scene = random_scene(n=150, seed=4)
    scene["means"] = scene["means"] * torch.tensor([4.0, 4.0, 5.0])
    both(scene, near_plane=0.5, far_plane=7.0, radius_clip=2.0)


def test_single_precision_is_close_to_double():
    scene = random_scene(coefficients=4)
    double = gradients(scene, backend="cpu", sh_degree=1)
    scene = {k: x.float() if isinstance(x, torch.Tensor) else x for k, x in scene.items()}
    single = gradients(scene, backend="cpu", sh_degree=1)
    assert all(x.dtype == torch.float32 for x in single.values())
    same({k: x.double() for k, x in single.items()}, double, 1e-4)


def test_gradients_match_central_differences():
    scene = random_scene(n=4, size=(16, 16), coefficients=4, scale=0.3, seed=5)
    pull = torch.randn(1, 16, 16, 3, dtype=torch.float64)

    def loss(**changed: torch.Tensor) -> torch.Tensor:
        options: Any = {"sh_degree": 1, "rasterize_mode": "antialiased", "backend": "cpu"}
        return (rasterize(**{**scene, **changed}, **options)[0] * pull).sum()

    step = 1e-6
    for name in LEARNED:
        leaf = scene[name].clone().requires_grad_()
        loss(**{name: leaf}).backward()
        direction = torch.randn_like(leaf)
        if name == "viewmats":
            direction[:, 3] = 0
        with torch.no_grad():
            up, down = (loss(**{name: leaf + s * step * direction}) for s in (1, -1))
        slope = (leaf.grad * direction).sum()
        # Pixels at the cut of 1 / 255 may come or go between the two.
        assert slope == pytest.approx(((up - down) / (2 * step)).item(), rel=1e-4), name


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(0, 40),
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    tile_size=st.sampled_from([1, 5, 8, 16, 64]),
    scale=st.sampled_from([0.003, 0.1, 2.0]),
    seed=st.integers(0, 1000),
)
def test_any_scene_matches_the_dense_reference(n, width, height, tile_size, scale, seed):
    scene = random_scene(n, (width, height), 2, None, seed, scale)
    both(scene, 1e-7, tile_size=tile_size)


def test_absolute_gradients_are_sums_over_pixels_without_signs():
    found = []
    for backend in ("cpu", "reference"):
        scene = random_scene(cameras=2)
        scene["means"].requires_grad_()
        images, _, meta = rasterize(**scene, absgrad=True, backend=backend)
        meta["means2d"].retain_grad()
        images.square().sum().backward()
        assert (meta["means2d"].absgrad >= meta["means2d"].grad.abs() - 1e-9).all()
        found.append(meta["means2d"].absgrad)
    assert (found[0] - found[1]).norm() < 1e-9 * found[1].norm()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("case", ["none", "behind", "faint"])
def test_nothing_to_see_is_the_background_with_gradients_of_zero(backend, case):
    scene = random_scene(n=0 if case == "none" else 9, coefficients=1, dtype=torch.float32)
    if case == "behind":
        scene["means"] = scene["means"] - torch.tensor([0.0, 0.0, 9.0])
    if case == "faint":
        scene["opacities"] = torch.full((9,), 0.003)
    background = torch.tensor([[0.2, 0.4, 0.6]])
    options = {"sh_degree": 0, "backgrounds": background, "backend": backend}
    images, alphas, meta = rasterize(**scene, **options)
    assert (images == background).all()
    assert not alphas.any()
    assert not meta["radii"].any()
    found = gradients(scene, **options)
    assert not any(found[name].any() for name in LEARNED if found[name] is not None)
    assert found["backgrounds"].any()


def test_a_gaussian_behind_the_camera_spoils_no_gradient():
    scene = random_scene()
    scene["means"][7] = -scene["viewmats"][0, :3, 3]  # in the camera's centre
    both(scene)


def test_tensors_need_not_be_contiguous():
    scene = random_scene(cameras=2)
    wanted = gradients(scene, backend="cpu")
    for name in LEARNED:
        x = scene[name]
        scene[name] = torch.stack([x, -x], -1)[..., 0]
        assert not scene[name].is_contiguous()
    same(gradients(scene, backend="cpu"), wanted, 1e-15)


def test_cameras_see_what_each_sees_alone():
    scene = random_scene(cameras=3)
    images, alphas, meta = rasterize(**scene, backend="cpu")
    assert images.shape == (3, 32, 32, 3)
    assert alphas.shape == (3, 32, 32, 1)
    for c in range(3):
        one = {**scene, "viewmats": scene["viewmats"][c : c + 1], "Ks": scene["Ks"][c : c + 1]}
        image, _, _ = rasterize(**one, backend="cpu")
        assert torch.equal(image[0], images[c])
    assert meta["means2d"].shape == (3, 50, 2)
    assert meta["radii"].dtype == torch.int32
    assert meta["n_cameras"] == 3


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def everything() -> dict[str, torch.Tensor]:
    scene = random_scene(n=5000, size=(96, 96), coefficients=4, scale=0.05, dtype=torch.float32)
    return gradients(scene, sh_degree=1, backend="cpu")


def identical(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_results_are_the_same_to_the_bit_on_any_number_of_threads(two_threads):
    many = everything()
    torch.set_num_threads(1)
    assert identical(everything(), many)


def test_threads_may_rasterise_at_once(two_threads):
    wanted, found = everything(), []
    callers = [threading.Thread(target=lambda: found.append(everything())) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 4
    assert all(identical(one, wanted) for one in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(two_threads):
    def note(first: int, end: int, seen: list[int]) -> None:
        seen.extend(range(first, end))

    threads.over(8, note, [])
    child = os.fork()
    if child == 0:
        seen: list[int] = []
        threads.over(8, note, seen)
        os._exit(0 if sorted(seen) == list(range(8)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_gsplats_strategy_grows_what_is_rendered():
    from gsplat import DefaultStrategy

    scene = random_scene(n=80, size=(48, 48), cameras=2, dtype=torch.float32)
    cameras = {k: scene.pop(k) for k in ("viewmats", "Ks", "width", "height")}
    raw = {**scene, "scales": scene["scales"].log(), "opacities": scene["opacities"].logit()}
    params = torch.nn.ParameterDict({k: torch.nn.Parameter(x) for k, x in raw.items()})
    optimizers = {k: torch.optim.Adam([x]) for k, x in params.items()}
    for absgrad in (False, True):
        strategy = DefaultStrategy(
            refine_start_iter=0, refine_every=1, grow_grad2d=1e-7, reset_every=100, absgrad=absgrad
        )
        state = strategy.initialize_state()
        before = len(params["means"])
        images, _, meta = rasterize(
            params["means"],
            params["quats"],
            params["scales"].exp(),
            params["opacities"].sigmoid(),
            params["colors"],
            **cameras,
            absgrad=absgrad,
            backend="cpu",
        )
        strategy.step_pre_backward(params, optimizers, state, 1, meta)
        images.square().mean().backward()
        strategy.step_post_backward(params, optimizers, state, 1, meta, packed=False)
        assert len(params["means"]) > before


SCENE = random_scene(n=3, dtype=torch.float32)


def changed(name: str, index: tuple[int, ...], value: float) -> dict[str, Any]:
    x = SCENE[name].clone()
    x[index] = value
    return {name: x}


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"means": SCENE["means"][:, :2]}, ValueError, r"means: got shape \(3, 2\), wants \(N, 3"),
        ({"quats": SCENE["quats"][:2]}, ValueError, r"quats: got shape \(2, 4\), wants \(3, 4\)"),
        ({"scales": SCENE["scales"][0]}, ValueError, r"scales: got shape \(3,\), wants \(3, 3\)"),
        ({"opacities": torch.ones(3, 1)}, ValueError, r"opacities: .* wants \(3,\)"),
        ({"colors": torch.ones(4, 3)}, ValueError, r"colors: got shape \(4, 3\), wants \(3, D\)"),
        ({"colors": torch.ones(3)}, ValueError, "colors: got shape"),
        ({"sh_degree": 1}, ValueError, r"colors: .* wants \(3, K, 3\) .* K >= 4"),
        ({"sh_degree": 4}, ValueError, "sh_degree: got 4, wants 0 to 3"),
        ({"sh_degree": 1.0}, TypeError, "sh_degree"),
        ({"viewmats": torch.eye(4)}, ValueError, r"viewmats: got shape \(4, 4\), wants \(C, 4, 4"),
        ({"viewmats": torch.zeros(0, 4, 4)}, ValueError, "viewmats: got shape"),
        ({"Ks": torch.eye(3)}, ValueError, r"Ks: got shape \(3, 3\), wants \(1, 3, 3\)"),
        (
            changed("viewmats", (0, 3, 2), 0.5),
            ValueError,
            r"viewmats: got .*0.5.* last rows of 0, 0, 0, 1",
        ),
        ({"viewmats": SCENE["viewmats"] * 2}, ValueError, "viewmats: .* last rows"),
        (changed("viewmats", (0, 1, 1), 2.0), ValueError, "viewmats: .* camera 0, wants rotations"),
        (changed("viewmats", (0, 1, 1), -1.0), ValueError, "viewmats: .* without reflection"),
        (changed("Ks", (0, 0, 1), 2.0), ValueError, "Ks: got .* wants no skew"),
        (changed("Ks", (0, 1, 0), 2.0), ValueError, "Ks: got .* wants no skew"),
        (
            changed("Ks", (0, 2, 2), 2.0),
            ValueError,
            r"Ks: got .*2.0\]\] for camera 0, wants last",
        ),
        ({"Ks": -torch.eye(3)[None]}, ValueError, "Ks: got .*-1.0.* focal lengths > 0"),
        ({"backgrounds": torch.ones(3)}, ValueError, r"backgrounds: .* wants \(1, 3\)"),
        ({"backgrounds": torch.tensor(1.0), "render_mode": "D"}, ValueError, "backgrounds: got"),
        ({"means": SCENE["means"].double()}, TypeError, "quats: got torch.float32, wants .*64"),
        ({"means": SCENE["means"].half()}, TypeError, "means: got torch.float16, wants"),
        ({"means": SCENE["means"].numpy()}, TypeError, "means: got ndarray, wants a torch.Tensor"),
        (changed("means", (1, 2), math.nan), ValueError, r"means: got nan at index \[1, 2\]"),
        (changed("colors", (2, 0), math.inf), ValueError, r"colors: got inf at index \[2, 0\]"),
        (changed("scales", (2, 1), 0.0), ValueError, r"scales: got 0 at index \[2, 1\], wants > 0"),
        (changed("opacities", (1,), 1.5), ValueError, r"opacities: got 1.5 at index \[1\], wants"),
        (changed("quats", (2,), 0.0), ValueError, "quats: got one of length 0 at index 2"),
        ({"width": 0}, ValueError, "width: got 0, wants an integer >= 1"),
        ({"height": 2.5}, TypeError, "height: got 2.5"),
        ({"tile_size": 0}, ValueError, "tile_size: got 0"),
        ({"near_plane": 0.0}, ValueError, "near_plane: got 0.0"),
        ({"far_plane": 0.001}, ValueError, "far_plane: got 0.001"),
        ({"eps2d": -1.0}, ValueError, "eps2d: got -1.0"),
        ({"radius_clip": math.nan}, ValueError, "radius_clip: got nan"),
        ({"render_mode": "rgb"}, ValueError, "render_mode: got 'rgb', wants one of RGB, D"),
        ({"rasterize_mode": "fast"}, ValueError, "rasterize_mode: got 'fast'"),
        ({"backend": "cuda"}, ValueError, "backend: got 'cuda', wants one of auto, gsplat, cpu"),
        ({"absgrad": 1}, TypeError, "absgrad: got 1, wants True or False"),
    ],
)
def test_bad_input_is_named(wrong, error, message):
    with pytest.raises(error, match=message):
        rasterize(**{**SCENE, **wrong})


def test_intrinsics_get_no_gradients():
    scene = {**SCENE, "Ks": SCENE["Ks"].clone().requires_grad_()}
    with pytest.raises(ValueError, match="Ks: got a tensor that requires a gradient"):
        rasterize(**scene)


def test_half_precision_around_it_changes_no_pixel():
    scene = {**random_scene(20, dtype=torch.float32), "backend": "reference"}
    expected, _, _ = rasterize(**scene)
    with torch.autocast("cpu", torch.bfloat16):
        found, _, _ = rasterize(**scene)
    assert torch.equal(found, expected)
