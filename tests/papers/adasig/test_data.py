"""Splits, the digits, the published files, and the mixture with heavy tails."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import torch

from assay.papers.adasig.data import (
    Examples,
    digits,
    first_sentence,
    idx_images,
    load,
    mixture,
    split,
)


def numbered(n=100):
    return Examples(torch.arange(n).float().unsqueeze(1), torch.arange(n) % 3)


def test_splits_share_no_example_and_leave_none_out():
    parts = split(numbered(), seed=3)
    assert [len(p) for p in (parts.train, parts.validation, parts.test)] == [70, 10, 20]
    together = torch.cat([parts.train.x, parts.validation.x, parts.test.x]).flatten()
    assert sorted(together.tolist()) == list(range(100))
    assert not torch.equal(parts.test.x, split(numbered(), seed=4).test.x)
    assert torch.equal(parts.test.x, split(numbered(), seed=3).test.x)


def test_an_official_test_part_stays_as_it_is():
    official = numbered(7)
    parts = split(numbered(), 0, official)
    assert parts.test is official
    assert len(parts.train) == 90


def test_a_whole_batch_comes_at_once():
    x, y = numbered().__getitems__([4, 2])
    assert x.flatten().tolist() == [4, 2]
    assert y.tolist() == [1, 2]
    assert numbered().__getitems__([])[0].shape == (0, 1)


def test_every_example_has_a_class():
    with pytest.raises(ValueError, match="2 classes"):
        Examples(torch.zeros(3, 1), torch.zeros(2))


def test_the_shipped_digits():
    found = digits()
    assert found.x.shape == (5000, 1, 28, 28)
    assert found.x.min() == 0
    assert found.x.max() == 1
    assert torch.bincount(found.y).tolist() == [500] * 10


def idx(array):
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write(folder, packed):
    images = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 256
    for prefix in ("train", "t10k"):
        for name, array in (("images-idx3", images), ("labels-idx1", np.array([3, 9]))):
            path = folder / f"{prefix}-{name}-ubyte"
            if packed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(array)))
            else:
                path.write_bytes(idx(array))
    return images


@pytest.mark.parametrize("packed", [True, False])
def test_the_published_files_are_read_packed_or_not(tmp_path, packed):
    images = write(tmp_path, packed)
    train, test = idx_images(tmp_path)
    assert train.y.tolist() == test.y.tolist() == [3, 9]
    assert torch.allclose(train.x[1, 0] * 255, torch.from_numpy(images[1]).float())
    parts = load("mnist", 0, tmp_path)
    assert parts.test is test


def test_a_file_cut_short_is_refused(tmp_path):
    write(tmp_path, packed=False)
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="t10k-labels"):
        idx_images(tmp_path)
    path.write_bytes(b"no")
    with pytest.raises(ValueError, match="not an idx file"):
        idx_images(tmp_path)


def test_gradients_of_the_mixture_have_lengths_of_all_sizes():
    found = mixture(2000)
    lengths = found.x.norm(dim=1)
    assert lengths.quantile(0.95) / lengths.quantile(0.05) > 10


def test_the_first_sentence_of_a_review():
    assert first_sentence("Oh, no! It went on.") == "Oh, no!"
    assert first_sentence("A film<br />of two halves.") == "A film"
    assert first_sentence("no stop") == "no stop"


def test_an_unknown_data_set_is_named(tmp_path):
    with pytest.raises(ValueError, match="cifar"):
        load("cifar", 0, tmp_path)
