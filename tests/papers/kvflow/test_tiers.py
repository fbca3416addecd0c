"""Tiers: bytes are accounted for, and what the disk gives back is what it was given."""

import pytest
import torch

from assay.papers.kvflow.blocks import n_bytes
from assay.papers.kvflow.tiers import CorruptBlock, DeviceTier, DiskTier, HostTier, TierFull


def block(n_tokens=4, dtype=torch.float32):
    return torch.randn(2, 2, 3, n_tokens, 5).to(dtype)


SIZE = n_bytes(block())


@pytest.fixture(params=["device", "host", "disk"])
def tier(request, tmp_path):
    return {
        "device": lambda: DeviceTier(2 * SIZE),
        "host": lambda: HostTier(2 * SIZE),
        "disk": lambda: DiskTier(2 * SIZE, tmp_path),
    }[request.param]()


def test_bytes_are_those_of_the_blocks(tier):
    first, second = block(), block()
    tier.put(1, first)
    tier.reserve(2, SIZE)
    assert tier.used_bytes == 2 * SIZE
    tier.put(2, second)
    assert tier.sizes() == {1: SIZE, 2: SIZE}
    assert torch.equal(tier.get(1), first)
    with pytest.raises(TierFull):
        tier.put(3, block(1))
    tier.free(1)
    tier.free(1)
    assert tier.used_bytes == SIZE
    with pytest.raises(KeyError):
        tier.get(1)
    tier.put(3, block(3))
    assert tier.used_bytes <= tier.capacity_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_disk_gives_back_every_bit(tmp_path, dtype):
    tier, given = DiskTier(2 * SIZE, tmp_path), block(dtype=dtype)
    tier.put(1, given)
    assert torch.equal(tier.get(1).view(torch.uint8), given.view(torch.uint8))


def test_a_damaged_file_is_noticed(tmp_path):
    tier = DiskTier(2 * SIZE, tmp_path)
    tier.put(1, block())
    file = tier.path / "1.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptBlock, match="wrong checksum"):
        tier.get(1)
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptBlock):
        tier.get(1)
    file.unlink()
    with pytest.raises(OSError, match=r"1\.safetensors"):
        tier.get(1)


def test_a_failed_write_leaves_neither_bytes_nor_file(tmp_path, monkeypatch):
    tier = DiskTier(2 * SIZE, tmp_path)

    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("assay.papers.kvflow.tiers.write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        tier.put(1, block())
    assert tier.used_bytes == 0
    assert list(tier.path.iterdir()) == []


def test_two_tiers_may_share_a_folder_and_clean_up(tmp_path):
    one, other = DiskTier(SIZE, tmp_path), DiskTier(SIZE, tmp_path)
    one.put(1, block())
    other.put(1, block())
    one.close()
    assert other.get(1).shape == block().shape
    folder = other.path
    del other
    assert not folder.exists()


def test_bad_arguments_say_what_is_wanted(tmp_path):
    with pytest.raises(ValueError, match="capacity_bytes: got -1, wants an integer >= 0"):
        DeviceTier(-1)
    with pytest.raises(OSError, match="nowhere"):
        DiskTier(1, tmp_path / "nowhere")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="pinned: got True"):
            HostTier(1, pinned=True)
