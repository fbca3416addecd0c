import json
import struct

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("embreex")

from assay.papers.treesplat.datasets import PoseError, dnerf, load_capture, save_capture
from assay.papers.treesplat.datasets.images import Film, read_image, shrink
from assay.papers.treesplat.datasets.points import read_points, write_points
from assay.papers.treesplat.scenes import Pendulum, render_capture
from assay.toolkits.files import write_text


@pytest.fixture(scope="module")
def capture():
    return render_capture(Pendulum(2), 16, n_train=6, n_val=2, n_test=2, n_points=30)


@pytest.fixture
def saved(capture, tmp_path):
    save_capture(capture, tmp_path / "scene")
    return tmp_path / "scene"


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def assert_same(found, wanted, atol=1e-6):
    for split in ("train", "val", "test"):
        a, b = getattr(found, split), getattr(wanted, split)
        assert len(a) == len(b)
        torch.testing.assert_close(a.viewmats, b.viewmats, atol=atol, rtol=0)
        torch.testing.assert_close(a.Ks, b.Ks)
        torch.testing.assert_close(a.times, b.times)
        for i in range(len(a)):
            assert torch.equal(a.image(i), b.image(i))


def test_saved_capture_comes_back(capture, saved):
    found = load_capture(saved)
    assert_same(found, capture)
    torch.testing.assert_close(found.points, capture.points)
    torch.testing.assert_close(found.point_colors, capture.point_colors, atol=0.5 / 255, rtol=0)
    torch.testing.assert_close(found.bounds, capture.bounds)
    assert found.time_scale == capture.time_scale
    assert found.center == pytest.approx(capture.center)
    assert found.scale == pytest.approx(capture.scale)
    assert found.synthetic
    with pytest.raises(ValueError, match="which holds a capture"):
        save_capture(capture, saved)


def test_d_nerfs_own_files(capture, saved):
    """As its authors wrote them: an angle of view for all, no suffix, no extras."""
    for split in ("train", "val", "test"):

        def plain(meta):
            del meta["assay"]
            for frame in meta["frames"]:
                for key in ("fl_x", "fl_y", "cx", "cy", "w", "h"):
                    del frame[key]

        edit(saved / f"transforms_{split}.json", plain)
    (saved / "points3d.ply").unlink()
    found = load_capture(saved, kind="dnerf")
    assert_same(found, capture)
    assert found.points is None
    assert torch.equal(found.bounds, torch.tensor([[-1.3] * 3, [1.3] * 3]))
    (saved / "transforms_val.json").unlink()
    assert len(load_capture(saved).val) == 0


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (lambda m: m["frames"][2].pop("time"), "frame train/r_002: has no time"),
        (lambda m: m["frames"][2].update(time=float("nan")), "frame train/r_002: time nan"),
        (
            lambda m: m["frames"][1].pop("transform_matrix"),
            "train/r_001: transform_matrix: got nothing, wants 4 x 4",
        ),
        (
            lambda m: m["frames"][1].update(transform_matrix=[1, 2]),
            r"train/r_001: transform_matrix: got \[1, 2\]",
        ),
        (
            lambda m: m["frames"][0].pop("file_path"),
            r"train\.json: frame 0: file_path: got nothing, wants a string",
        ),
        (
            lambda m: (m["frames"][3].pop("fl_x"), m.pop("camera_angle_x")),
            "frame train/r_003: neither fl_x nor camera_angle_x",
        ),
        (
            lambda m: m["frames"][3].update(fl_x=0.0),
            "train/r_003: fl_x: got 0.0, wants a finite number > 0",
        ),
        (lambda m: m.pop("frames"), r"transforms_train\.json: frames: got nothing, wants a list"),
        (lambda m: m["frames"].clear(), "train: got no frames"),
        (lambda m: m["frames"][2].update(time=10**400), r"r_002: time 1000.*, wants a finite"),
        (lambda m: m["frames"][1].update(w=0), "r_001: w: got 0, wants a finite number > 0"),
        (lambda m: m["frames"][1].update(h=-1), "r_001: h: got -1, wants a finite number > 0"),
        (lambda m: m["frames"][1].update(w=20), "r_001: its picture is 16 x 16 .* says 20 x 16"),
        (lambda m: m["frames"].insert(0, 3), "frame 0: got 3, wants a JSON object"),
        (lambda m: m.update(assay=3), r"transforms_train\.json: assay: got 3, wants a JSON obj"),
        (lambda m: m["assay"].update(center=5), "assay: center: got 5, wants 3 finite numbers"),
        (lambda m: m["assay"].update(bounds=None), "assay: bounds: got None, wants 2 x 3 finite"),
        (
            lambda m: m["assay"].update(bounds=[[0, 0, float("nan")], [1, 1, 1]]),
            "assay: bounds: got .*nan.*, wants 2 x 3 finite",
        ),
        (
            lambda m: m["assay"]["bounds"].reverse(),
            "assay: bounds: got .*, wants a lower and an upper corner",
        ),
        (lambda m: m["assay"].update(scale=0), "assay: scale: got 0, wants a finite number > 0"),
        (
            lambda m: m["assay"].update(time_scale={"zero": 1}),
            "assay: time_scale: duration: got nothing",
        ),
    ],
)
def test_broken_transforms_name_file_frame_and_key(saved, change, pattern):
    edit(saved / "transforms_train.json", change)
    with pytest.raises(ValueError, match=pattern):
        load_capture(saved)


def test_missing_pictures_and_no_json(saved):
    (saved / "train" / "r_004.png").rename(saved / "train" / "x.png")
    with pytest.raises(FileNotFoundError, match=r"train/r_004: no such picture, nor one ending"):
        load_capture(saved)
    whole = (saved / "train" / "x.png").read_bytes()
    (saved / "train" / "r_004.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"train/r_004\.png: damaged picture"):
        load_capture(saved).train.image(4)
    (saved / "train" / "r_004.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"r_004\.png: no picture"):
        load_capture(saved)
    (saved / "transforms_train.json").write_text("{")
    with pytest.raises(ValueError, match=r"transforms_train\.json: not JSON"):
        load_capture(saved)


def test_a_capture_half_written_is_none(capture, tmp_path, monkeypatch):
    def fail(path, text):
        if path.name == "transforms_train.json":
            raise OSError("no space left")
        write_text(path, text)

    monkeypatch.setattr(dnerf, "write_text", fail)
    with pytest.raises(OSError, match="no space"):
        save_capture(capture, tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="holds no capture"):
        load_capture(tmp_path / "a")
    monkeypatch.undo()
    save_capture(capture, tmp_path / "a")
    assert_same(load_capture(tmp_path / "a"), capture)


def test_one_flipped_camera_is_named(saved):
    def flip(meta):
        matrix = np.array(meta["frames"][3]["transform_matrix"])
        meta["frames"][3]["transform_matrix"] = (matrix @ np.diag([1, -1, -1, 1])).tolist()

    edit(saved / "transforms_train.json", flip)
    with pytest.raises(PoseError, match="frame train/r_003: its pose looks away"):
        load_capture(saved)
    load_capture(saved, check_poses=False)


def test_wrong_poses_are_found_on_loading_and_can_be_told(capture, saved):
    for split in ("train", "val", "test"):

        def opencv(meta):
            for frame in meta["frames"]:
                matrix = np.array(frame["transform_matrix"])
                frame["transform_matrix"] = (matrix @ np.diag([1, -1, -1, 1])).tolist()

        edit(saved / f"transforms_{split}.json", opencv)
    with pytest.raises(PoseError, match="OpenCV's, not OpenGL's: pass convention='opencv cam"):
        load_capture(saved)
    assert_same(load_capture(saved, convention="opencv camera-to-world"), capture)
    load_capture(saved, check_poses=False)


def test_times_of_all_splits_are_normalised_together(saved):
    def in_frames(meta):
        for frame in meta["frames"]:
            frame["time"] = round(frame["time"] * 100) + 50
        del meta["assay"]["time_scale"]

    for split in ("train", "val", "test"):
        edit(saved / f"transforms_{split}.json", in_frames)
    found = load_capture(saved)
    assert found.time_scale.start == 50
    assert found.time_scale.duration == 100
    assert found.time_scale.unit == "frames"
    assert found.train.times.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])


def test_one_time_for_all_warns(saved):
    for split in ("train", "val", "test"):
        edit(
            saved / f"transforms_{split}.json",
            lambda meta: [frame.update(time=0.5) for frame in meta["frames"]],
        )
    with pytest.warns(UserWarning, match="share the time 0.5: there is no motion to learn"):
        assert load_capture(saved).still


def test_downscaled_images_are_means_and_cameras_follow(capture, saved):
    found = load_capture(saved, downscale=4)
    frame = found.train.frames[1]
    assert (frame.width, frame.height) == (4, 4)
    torch.testing.assert_close(frame.K[:2], capture.train.frames[1].K[:2] / 4)
    large, small = capture.train.image(1), found.train.image(1)
    means = large.reshape(4, 4, 4, 4, 3).mean((1, 3))
    torch.testing.assert_close(small, means, atol=0.01, rtol=0)


def test_shrinking_keeps_hidden_colours_out():
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0, 0] = (200, 100, 50, 255)
    pixels[1, 1] = (0, 255, 0, 0)  # invisible
    np.testing.assert_allclose(shrink(pixels, 2, "straight")[0, 0], [200, 100, 50, 64], atol=2)
    premultiplied = pixels.copy()
    premultiplied[1, 1] = 0
    found = shrink(premultiplied, 2, "premultiplied")[0, 0]
    np.testing.assert_allclose(found, [50, 25, 12, 64], atol=1)
    assert shrink(np.zeros((5, 3, 3), np.uint8), 2, "straight").shape == (3, 2, 3)


def test_premultiplied_pictures_are_saved_straight(tmp_path, capture):
    from dataclasses import replace

    from assay.papers.treesplat.datasets import DynamicDataset

    pixels = np.full((16, 16, 4), 100, np.uint8)
    pixels[..., 3] = 200
    train = DynamicDataset(capture.train.frames, lambda i: pixels, alpha_mode="premultiplied")
    save_capture(replace(capture, train=train), tmp_path / "a")
    again = load_capture(tmp_path / "a")
    torch.testing.assert_close(again.train.image(0), train.image(0), atol=1 / 255, rtol=0)


def nerfstudio(folder, capture, **more):
    """The training frames as nerfstudio writes them."""
    save_capture(capture, folder)
    meta = json.loads((folder / "transforms_train.json").read_text())
    del meta["assay"], meta["camera_angle_x"]
    first = meta["frames"][0]
    for key in ("fl_x", "fl_y", "cx", "cy", "w", "h"):
        meta[key] = first[key]
        for frame in meta["frames"]:
            del frame[key]
    for frame in meta["frames"]:
        frame["file_path"] += ".png"
    meta |= {"camera_model": "OPENCV", "ply_file_path": "cloud.ply", **more}
    (folder / "points3d.ply").rename(folder / "cloud.ply")
    (folder / "transforms.json").write_text(json.dumps(meta))
    for split in ("train", "val", "test"):
        (folder / f"transforms_{split}.json").unlink()


def test_nerfstudio(capture, tmp_path):
    nerfstudio(tmp_path, capture)
    found = load_capture(tmp_path)
    # Every eighth frame is held out; there are six.
    assert [frame.name for frame in found.test.frames] == ["train/r_000.png"]
    assert len(found.train) == 5
    torch.testing.assert_close(found.train.viewmats, capture.train.viewmats[1:], atol=1e-6, rtol=0)
    torch.testing.assert_close(found.train.Ks, capture.train.Ks[1:])
    torch.testing.assert_close(found.points, capture.points)
    torch.testing.assert_close(
        found.bounds, torch.stack([found.points.amin(0), found.points.amax(0)])
    )
    assert not found.synthetic


def test_nerfstudio_with_listed_splits_and_intrinsics_of_frames(capture, tmp_path):
    nerfstudio(
        tmp_path,
        capture,
        train_filenames=["train/r_001.png", "./train/r_002.png"],
        val_filenames=["train/r_003.png"],
        test_filenames=["train/r_005.png"],
    )
    edit(
        tmp_path / "transforms.json",
        # For pictures of twice the size, of which these are the small copies.
        lambda meta: meta["frames"][2].update(fl_x=90.0, fl_y=80.0, cx=15.0, cy=17.0, w=32, h=32),
    )
    found = load_capture(tmp_path)
    assert [len(split) for split in (found.train, found.val, found.test)] == [2, 1, 1]
    torch.testing.assert_close(
        found.train.frames[1].K, torch.tensor([[45, 0, 7.5], [0, 40, 8.5], [0, 0, 1.0]])
    )


def test_nerfstudio_lists_that_do_not_fit(capture, tmp_path):
    nerfstudio(tmp_path, capture, train_filenames=["./train/r_001", "train/r_002.jpg"])
    path = tmp_path / "transforms.json"
    found = load_capture(tmp_path)
    assert [frame.name for frame in found.train.frames] == ["train/r_001.png", "train/r_002.png"]
    for key, value, pattern in (
        ("train_filenames", ["train/r_099.png"], "'train/r_099.png', wants the file_path of a"),
        ("train_filenames", 5, r"transforms\.json: train_filenames: got 5, wants a list of names"),
        ("ply_file_path", 5, r"transforms\.json: ply_file_path: got 5, wants a string"),
    ):
        before = path.read_text()
        edit(path, lambda meta, key=key, value=value: meta.update({key: value}))
        with pytest.raises(ValueError, match=pattern):
            load_capture(tmp_path)
        path.write_text(before)


def test_nerfstudio_with_one_frame_trains_on_it(capture, tmp_path):
    nerfstudio(tmp_path, capture)
    edit(tmp_path / "transforms.json", lambda m: m.update(frames=m["frames"][:1]))
    found = load_capture(tmp_path)
    assert [len(split) for split in (found.train, found.val, found.test)] == [1, 0, 0]


def test_nerfstudio_lenses(capture, tmp_path):
    nerfstudio(tmp_path, capture, k1=0.1)
    with pytest.warns(UserWarning, match="its lens distorts"):
        load_capture(tmp_path)
    edit(tmp_path / "transforms.json", lambda m: m.update(camera_model="OPENCV_FISHEYE"))
    with pytest.raises(ValueError, match="camera_model 'OPENCV_FISHEYE', wants a pinhole"):
        load_capture(tmp_path)
    edit(tmp_path / "transforms.json", lambda m: [f.pop("time") for f in m["frames"]])
    edit(tmp_path / "transforms.json", lambda m: m.update(camera_model="PINHOLE", k1=0))
    with pytest.raises(ValueError, match=r"frame train/r_\d+.png: has no time"):
        load_capture(tmp_path)


CENTER, SCALE = np.array([1.0, -2, 3]), 0.25


def hypernerf(folder, capture, scales=(1, 2)):
    """The training frames as Nerfies writes them, in a world four times as large, elsewhere."""
    (folder / "camera").mkdir(parents=True)
    ids, metadata = [], {}
    for i, frame in enumerate(capture.train.frames):
        name = f"{i:06d}"
        ids.append(name)
        viewmat = frame.viewmat.double().numpy()
        eye = -viewmat[:3, :3].T @ viewmat[:3, 3]
        camera = {
            "orientation": viewmat[:3, :3].tolist(),
            "position": (eye / SCALE + CENTER).tolist(),
            "focal_length": frame.K[0, 0].item(),
            "principal_point": frame.K[:2, 2].tolist(),
            "skew": 0.0,
            "pixel_aspect_ratio": 1.0,
            "radial_distortion": [0.0, 0.0, 0.0],
            "tangential_distortion": [0.0, 0.0],
            "image_size": [frame.width, frame.height],
        }
        (folder / "camera" / f"{name}.json").write_text(json.dumps(camera))
        metadata[name] = {"warp_id": i, "appearance_id": i, "camera_id": 0}
        rgb = Image.fromarray(np.rint(255 * capture.train.image(i).numpy()).astype(np.uint8))
        for scale in scales:
            (folder / "rgb" / f"{scale}x").mkdir(parents=True, exist_ok=True)
            rgb.reduce(scale).save(folder / "rgb" / f"{scale}x" / f"{name}.png")
    dataset = {"count": 6, "ids": ids, "train_ids": ids[:4], "val_ids": ids[4:]}
    scene = {"center": CENTER.tolist(), "scale": SCALE, "near": 0.1, "far": 2.0}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "dataset.json").write_text(json.dumps(dataset))
    (folder / "scene.json").write_text(json.dumps(scene))
    np.save(folder / "points.npy", capture.points.numpy() / SCALE + CENTER)


def test_hypernerf(capture, tmp_path):
    hypernerf(tmp_path, capture)
    found = load_capture(tmp_path)
    assert [len(split) for split in (found.train, found.val, found.test)] == [4, 0, 2]
    torch.testing.assert_close(found.train.viewmats, capture.train.viewmats[:4], atol=1e-5, rtol=0)
    torch.testing.assert_close(found.test.Ks, capture.train.Ks[4:])
    torch.testing.assert_close(found.points, capture.points, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.train.image(2), capture.train.image(2), atol=0.003, rtol=0)
    assert found.time_scale.unit == "frames"
    assert found.test.times.tolist() == pytest.approx([0.8, 1.0])
    assert found.scale == SCALE


def test_hypernerfs_smaller_pictures(capture, tmp_path):
    hypernerf(tmp_path, capture, scales=(2,))
    half, quarter = load_capture(tmp_path, downscale=2), load_capture(tmp_path, downscale=4)
    assert half.train.image(0).shape == (8, 8, 3)
    assert quarter.train.image(0).shape == (4, 4, 3)
    torch.testing.assert_close(quarter.train.Ks[0, :2], capture.train.Ks[0, :2] / 4)
    with pytest.raises(FileNotFoundError, match="has 2x, none of which gives downscale=1"):
        load_capture(tmp_path)


def test_hypernerf_without_listed_splits_and_with_broken_files(capture, tmp_path):
    hypernerf(tmp_path, capture)
    edit(tmp_path / "dataset.json", lambda m: m.update(val_ids=[], train_ids=[]))
    found = load_capture(tmp_path)
    assert [frame.name for frame in found.train.frames] == ["000000", "000004"]
    assert [frame.name for frame in found.test.frames] == ["000002"]
    edit(tmp_path / "camera" / "000004.json", lambda m: m.pop("focal_length"))
    with pytest.raises(ValueError, match=r"000004\.json: focal_length: got nothing, wants"):
        load_capture(tmp_path)
    edit(tmp_path / "metadata.json", lambda m: m.pop("000000"))
    edit(tmp_path / "camera" / "000004.json", lambda m: m.update(focal_length=9))
    with pytest.raises(ValueError, match="frame 000000: has no time"):
        load_capture(tmp_path)


@pytest.mark.parametrize(
    ("file", "key", "value", "wants"),
    [
        ("camera/000001", "image_size", None, "2 finite numbers"),
        ("camera/000001", "image_size", [16], "2 finite numbers"),
        ("camera/000001", "image_size", [0, 0], "2 numbers > 0"),
        ("camera/000001", "focal_length", 0, "a finite number > 0"),
        ("camera/000001", "focal_length", -3, "a finite number > 0"),
        ("camera/000001", "focal_length", float("nan"), "a finite number > 0"),
        ("camera/000001", "pixel_aspect_ratio", 0, "a finite number > 0"),
        ("camera/000001", "radial_distortion", None, "n finite numbers"),
        ("camera/000001", "radial_distortion", "x", "n finite numbers"),
        ("scene", "scale", 0, "a finite number > 0"),
        ("dataset", "ids", 3, "a list of names"),
        ("metadata", "000001", [1], "a JSON object"),
    ],
)
def test_broken_hypernerf_files_name_file_and_key(capture, tmp_path, file, key, value, wants):
    hypernerf(tmp_path, capture)
    edit(tmp_path / f"{file}.json", lambda meta: meta.update({key: value}))
    with pytest.raises(ValueError, match=rf"{file}\.json: {key}: got .*, wants {wants}"):
        load_capture(tmp_path)


def test_hypernerfs_skew_is_dropped_and_pictures_0x_passed_over(capture, tmp_path):
    hypernerf(tmp_path, capture)
    (tmp_path / "rgb" / "0x").mkdir()
    for i in (1, 2):
        edit(tmp_path / "camera" / f"00000{i}.json", lambda meta: meta.update(skew=0.5))
    with pytest.warns(UserWarning, match=r"have skew, up to 0\.5, .* taken for 0") as caught:
        found = load_capture(tmp_path)
    assert len(caught) == 1
    torch.testing.assert_close(found.train.Ks, capture.train.Ks[:4])


FRAMES, RATE = 12, 30


def film(path, shade):
    """A film whose frame i is of one grey, shade + 10 i."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        stream.codec_context.gop_size = 5
        for i in range(FRAMES):
            pixels = np.full((16, 32, 3), shade + 10 * i, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def n3v(folder, capture, taken_apart=()):
    folder.mkdir(exist_ok=True)
    rows = []
    for i, frame in enumerate(capture.train.frames[:3]):
        if i in taken_apart:
            images = folder / f"cam{i:02d}" / "images"
            images.mkdir(parents=True)
            for k in range(FRAMES):
                Image.new("RGB", (32, 16), (20 * i + 10 * k,) * 3).save(images / f"{k:04d}.png")
        else:
            film(folder / f"cam{i:02d}.mp4", 20 * i)
        pose = np.linalg.inv(frame.viewmat.double().numpy()) @ np.diag([1, -1, -1, 1])
        right, up, back, place = pose[:3].T
        # Written for pictures of twice the size.
        row = np.stack([-up, right, back, place, [32, 64, 80]], 1)
        rows.append(np.concatenate([row.ravel(), [1.0, 6.0]]))
    np.save(folder / "poses_bounds.npy", np.stack(rows))


def test_n3v(capture, tmp_path):
    n3v(tmp_path, capture)
    write_points(tmp_path / "points3D_downsample2.ply", capture.points.double().numpy(), None)
    found = load_capture(tmp_path)
    assert [len(split) for split in (found.train, found.val, found.test)] == [24, 0, 12]
    torch.testing.assert_close(found.test.viewmats[5], capture.train.viewmats[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(
        found.train.viewmats[12], capture.train.viewmats[2], atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        found.train.Ks[0], torch.tensor([[40, 0, 16], [0, 40, 8], [0, 0, 1.0]])
    )
    assert found.test.times.tolist() == pytest.approx((np.arange(12) / 11).tolist())
    assert found.time_scale.unit == "seconds"
    assert found.time_scale.duration == pytest.approx(11 / 30)
    assert len(found.points) == 30
    # Frames in any order are the frames that were asked for.
    for i in (11, 0, 3, 4, 2, 10):
        assert found.test.image(i).mean().item() * 255 == pytest.approx(10 * i, abs=4)
        assert found.train.image(12 + i).mean().item() * 255 == pytest.approx(40 + 10 * i, abs=4)
    assert load_capture(tmp_path, downscale=2).train.image(0).shape == (8, 16, 3)


def test_n3v_taken_apart_and_without_points(capture, tmp_path):
    n3v(tmp_path, capture, taken_apart=(0, 1, 2))
    found = load_capture(tmp_path, kind="n3v")
    assert len(found.train) == 24
    assert found.train.image(3).mean().item() * 255 == pytest.approx(50, abs=0.5)
    assert found.points is None
    assert (found.bounds[1] > found.bounds[0]).all()
    inside = (found.bounds[0] < 0) & (found.bounds[1] > 0)  # where its cameras look
    assert inside.all()
    (tmp_path / "cam03").mkdir()
    (tmp_path / "cam03" / "images").mkdir()
    with pytest.raises(ValueError, match=r"4 cameras .* 3 rows in poses_bounds"):
        load_capture(tmp_path)


@pytest.mark.parametrize(
    ("column", "value"), [(4, 0.0), (9, -1.0), (14, 0.0), (15, float("nan")), (16, 0.5)]
)
def test_broken_poses_bounds(tmp_path, column, value):
    table = np.ones((2, 17))
    table[:, 16] = 6
    table[1, column] = value
    np.save(tmp_path / "poses_bounds.npy", table)
    with pytest.raises(ValueError, match=r"poses_bounds\.npy: row 1: got .* wants finite"):
        load_capture(tmp_path)
    np.save(tmp_path / "poses_bounds.npy", table[:, :15])
    with pytest.raises(ValueError, match=r"poses_bounds\.npy: got float64 \(2, 15\), wants"):
        load_capture(tmp_path)
    (tmp_path / "poses_bounds.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"poses_bounds\.npy"):
        load_capture(tmp_path)


def test_films_that_are_none_and_frames_beyond_the_end(tmp_path):
    film(tmp_path / "a.mp4", 0)
    opened = Film(tmp_path / "a.mp4")
    assert (opened.n_frames, opened.rate, opened.width) == (12, 30, 32)
    with pytest.raises(ValueError, match="has no frame 99"):
        opened.read(99)
    assert opened.read(1).mean() == pytest.approx(10, abs=4)
    (tmp_path / "b.mp4").write_text("no film")
    with pytest.raises(ValueError, match="no video"):
        Film(tmp_path / "b.mp4")
    np.save(tmp_path / "poses_bounds.npy", np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"wants \(cameras, 17\) numbers"):
        load_capture(tmp_path)


def test_layouts_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"looked for transforms_train\.json \(dnerf\), t"):
        load_capture(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no poses_bounds\.npy, wants one"):
        load_capture(tmp_path, kind="n3v")
    with pytest.raises(FileNotFoundError, match="which is no folder"):
        load_capture(tmp_path / "nowhere")
    for arguments, pattern in (
        ({"kind": "blender"}, "kind: got 'blender', wants one of auto, dnerf"),
        ({"background": "red"}, "background: got 'red'"),
        ({"downscale": 0}, "downscale: got 0"),
        ({"convention": "up"}, "convention: got 'up'"),
        ({"alpha_mode": "none"}, "alpha_mode: got 'none'"),
        ({"cache_bytes": -1}, "cache_bytes: got -1"),
    ):
        with pytest.raises(ValueError, match=pattern):
            load_capture(tmp_path, **arguments)


def test_gray_and_palette_pictures(tmp_path):
    Image.new("L", (3, 2), 7).save(tmp_path / "gray.png")
    Image.new("LA", (3, 2), (7, 8)).save(tmp_path / "alpha.png")
    assert read_image(tmp_path / "gray.png").shape == (2, 3, 3)
    np.testing.assert_array_equal(read_image(tmp_path / "alpha.png")[0, 0], [7, 7, 7, 8])


def test_pictures_of_16_bits(tmp_path):
    values = np.array([[0, 256, 32768, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    np.testing.assert_array_equal(read_image(tmp_path / "deep.png")[0, :, 1], [0, 1, 128, 255])
    for mode in "IF":
        Image.new(mode, (2, 2)).save(tmp_path / f"{mode}.tiff")
        with pytest.raises(ValueError, match=rf"{mode}\.tiff: pixels of mode {mode}, wants 8 bits"):
            read_image(tmp_path / f"{mode}.tiff")


def test_point_clouds(tmp_path):
    points = np.random.default_rng(0).normal(size=(5, 3))
    colors = np.linspace(0, 1, 15).reshape(5, 3)
    write_points(tmp_path / "a.ply", points, colors)
    found, shades = read_points(tmp_path / "a.ply")
    np.testing.assert_allclose(found, points, rtol=1e-6)
    np.testing.assert_allclose(shades, colors, atol=0.5 / 255)
    binary, text = struct.pack("<Q", 5), "# 3D point list\n"
    for i, (point, color) in enumerate(zip(points, np.rint(255 * colors).astype(int), strict=True)):
        binary += struct.pack("<Q3d3BdQ", i, *point, *color, 0.5, i) + bytes(8 * i)
        text += " ".join(map(str, [i, *point, *color, 0.5, 1, 2])) + "\n"
    (tmp_path / "points3D.bin").write_bytes(binary)
    (tmp_path / "points3D.txt").write_text(text)
    for name in ("points3D.bin", "points3D.txt"):
        found, shades = read_points(tmp_path / name)
        np.testing.assert_allclose(found, points)
        np.testing.assert_allclose(shades, colors, atol=0.5 / 255)


@pytest.mark.parametrize(
    ("name", "content", "pattern"),
    [
        ("a.ply", b"nonsense", r"a\.ply: "),
        ("a.bin", struct.pack("<Q", 3) + b"12", r"a\.bin: 10 bytes, too few for the 3 points"),
        ("a.bin", struct.pack("<Q", 2**60), r"a\.bin: 8 bytes, too few"),
        ("a.npy", b"", r"a\.npy: "),
        ("a.txt", b"1 2 3 4\n", r"a\.txt: wants a number, a place"),
        ("a.txt", b"1 nan 0 0 1 1 1\n", "none with NaN"),
        ("a.obj", b"", r"wants \.ply, \.npy"),
    ],
)
def test_broken_point_clouds(tmp_path, name, content, pattern):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=pattern):
        read_points(tmp_path / name)
