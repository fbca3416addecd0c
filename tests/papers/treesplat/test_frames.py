import numpy as np
import pytest
import torch

from assay.papers.treesplat.datasets.frames import (
    Capture,
    DynamicDataset,
    Frame,
    TimeScale,
    camera_centers,
    normalize_times,
)


def frame(name="a", time=0.0, width=4, height=3, viewmat=None):
    viewmat = torch.eye(4) if viewmat is None else viewmat
    return Frame(name, time, viewmat, torch.eye(3), width, height)


def dataset(*images, **options):
    frames = [
        frame(f"r_{i}", 0.0, image.shape[1], image.shape[0]) for i, image in enumerate(images)
    ]
    return DynamicDataset(frames, images.__getitem__, **options)


def test_straight_alpha_is_multiplied_and_premultiplied_is_not():
    pixels = np.full((1, 1, 4), 128, np.uint8)
    straight = dataset(pixels).image(0)[0, 0, 0].item()
    assert straight == pytest.approx((128 / 255) ** 2 + 1 - 128 / 255, abs=1e-6)
    premultiplied = dataset(pixels, alpha_mode="premultiplied").image(0)[0, 0, 0].item()
    assert premultiplied == pytest.approx(1, abs=1e-6)
    black = dataset(pixels, background="black").image(0)[0, 0, 0].item()
    assert black == pytest.approx((128 / 255) ** 2, abs=1e-6)
    red = dataset(pixels).image(0, background=torch.tensor([1.0, 0, 0]))
    assert red[0, 0, 0] > red[0, 0, 1] == pytest.approx(black, abs=1e-6)
    assert dataset(pixels).alpha(0).item() == pytest.approx(128 / 255)


def test_colours_beyond_alpha_are_not_premultiplied():
    pixels = np.array([[[200, 0, 0, 100]]], np.uint8)
    with pytest.raises(ValueError, match="frame r_0: colours exceed alpha"):
        dataset(pixels, alpha_mode="premultiplied").image(0)


def test_alpha_without_a_background_is_refused_and_rgb_needs_none():
    with pytest.raises(ValueError, match="frame r_0: has alpha, wants background="):
        dataset(np.zeros((1, 1, 4), np.uint8), background=None).image(0)
    rgb = dataset(np.full((1, 1, 3), 51, np.uint8), background=None)
    torch.testing.assert_close(rgb.image(0), torch.full((1, 1, 3), 0.2))
    assert rgb.alpha(0) is None


def test_images_may_differ_in_size_but_not_from_their_camera():
    mixed = dataset(np.zeros((2, 3, 3), np.uint8), np.zeros((4, 5, 3), np.uint8))
    assert mixed.mixed_sizes
    assert mixed.image(1).shape == (4, 5, 3)
    wrong = DynamicDataset([frame("r_7")], lambda i: np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(ValueError, match="frame r_7: 9 x 9 pixels, its camera says 4 x 3"):
        wrong.image(0)
    gray = DynamicDataset([frame("r_8")], lambda i: np.zeros((3, 4), np.uint8))
    with pytest.raises(ValueError, match="frame r_8: uint8"):
        gray.image(0)


def test_cache_is_bounded_and_forgets_the_longest_unused():
    reads = []

    def read(i):
        reads.append(i)
        return np.full((3, 4, 3), i, np.uint8)

    split = DynamicDataset([frame(str(i)) for i in range(4)], read, cache_bytes=2 * 36)
    for i in (0, 1, 0, 2, 0, 1):
        assert split.pixels(i)[0, 0, 0] == i
        assert split.cached_bytes <= 72
    assert reads == [0, 1, 2, 1]
    assert split.pixels(-1)[0, 0, 0] == 3
    with pytest.raises(IndexError):
        split.pixels(4)
    split = DynamicDataset([frame()], read, cache_bytes=0)
    split.pixels(0), split.pixels(0)
    assert reads[-2:] == [0, 0]
    assert split.cached_bytes == 0


def test_nothing_is_read_before_it_is_asked_for():
    def read(i):
        raise AssertionError("read")

    split = DynamicDataset([frame(time=t) for t in (0.0, 0.5)], read)
    assert len(split) == 2
    assert split.times.tolist() == [0, 0.5]
    assert split.viewmats.shape == (2, 4, 4)
    assert split.Ks.shape == (2, 3, 3)


def test_bad_data_sets():
    for time in (1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match="frame a: time"):
            DynamicDataset([frame(time=time)], lambda i: None)
    with pytest.raises(ValueError, match="background: got 'pink', wants one of white, black"):
        DynamicDataset([], lambda i: None, background="pink")
    with pytest.raises(ValueError, match="alpha_mode: got 'odd'"):
        DynamicDataset([], lambda i: None, alpha_mode="odd")


@pytest.mark.parametrize(
    ("recorded", "wanted", "scale"),
    [
        ([0.0, 0.25, 0.75], [0.0, 0.25, 0.75], TimeScale(0, 1, "clip")),
        ([10, 20, 30], [0, 0.5, 1], TimeScale(10, 20, "frames")),
        ([0.5, 2.5, 4.5], [0, 0.5, 1], TimeScale(0.5, 4, "seconds")),
        ([-1.0, 0.0, 1.0], [0, 0.5, 1], TimeScale(-1, 2, "frames")),
    ],
)
def test_times_are_normalised_and_recorded(recorded, wanted, scale):
    times, found = normalize_times(recorded, ["a", "b", "c"])
    assert times == wanted
    assert found == scale
    for time, original in zip(times, recorded, strict=True):
        assert found.start + time * found.duration == pytest.approx(original)


@pytest.mark.parametrize(
    ("bad", "pattern"),
    [
        (None, r"frame b: has no time, wants one in \[0, 1\]"),
        (float("nan"), "frame b: time nan"),
        (float("inf"), "frame b: time inf"),
        (10**400, "frame b: time 1000"),
        ("0.3", "frame b: time '0.3', wants a finite number"),
        (True, "frame b: time True"),
    ],
)
def test_bad_times_name_their_frame(bad, pattern):
    with pytest.raises(ValueError, match=pattern):
        normalize_times([0.0, bad, 1.0], ["a", "b", "c"])


def test_one_time_for_all_warns_that_there_is_no_motion():
    with pytest.warns(UserWarning, match="all 3 frames share the time 7: there is no motion"):
        times, scale = normalize_times([7, 7, 7], ["a", "b", "c"])
    assert times == [0, 0, 0]
    assert scale.duration == 0


def test_extent_is_that_of_the_cameras_or_of_the_box():
    def capture(*places):
        frames = []
        for place in places:
            viewmat = torch.eye(4)
            viewmat[:3, 3] = -torch.tensor(place)
            frames.append(frame(viewmat=viewmat))
        split = DynamicDataset(frames, lambda i: None)
        bounds = torch.tensor([[-1.0, -1, -1], [1, 1, 1]])
        return Capture(split, split, split, None, None, bounds)

    assert capture([2.0, 0, 0], [-2.0, 0, 0]).extent == pytest.approx(2.2)
    assert capture([2.0, 0, 0], [2.0, 0, 0]).extent == pytest.approx(3**0.5)
    assert capture([2.0, 0, 0]).still
    assert torch.equal(capture([2.0, 0, 0]).background, torch.ones(3))
    place = torch.tensor([1.0, 2, 3])
    assert torch.equal(camera_centers(capture([1.0, 2, 3]).train.viewmats)[0], place)
