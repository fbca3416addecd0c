"""Copies in the background: layers in order, overtaking, pace, and threads that die."""

import threading
import time

import pytest
import torch

from assay.papers.kvflow.link import DEMAND, PREFETCH, Link, TransferFailed
from assay.papers.kvflow.timeline import Timeline


def block(value=None):
    return torch.randn(6, 2, 2, 8, 4) if value is None else torch.full((6, 2, 2, 8, 4), value)


@pytest.fixture
def link():
    link = Link(timeline=Timeline())
    yield link
    link.close()


def test_a_copy_arrives_and_leaves_the_source_alone(link):
    source, destination = block(), torch.empty_like(block())
    link.copy("load", source, destination).wait(timeout=5)
    assert torch.equal(source, destination)
    assert source.data_ptr() != destination.data_ptr()


def test_the_first_layers_can_be_used_while_the_last_is_under_way(link):
    go_on = threading.Event()

    class Source:
        """Blocks before its fourth layer."""

        tensor = block()

        def __getitem__(self, layer):
            assert layer < 3 or go_on.wait(5)
            return self.tensor[layer]

    source, destination = Source(), torch.empty_like(block())
    transfer = link.copy("load", lambda: source, destination)
    transfer.wait(layer=2, timeout=5)
    assert torch.equal(destination[:3], source.tensor[:3])
    with pytest.raises(TimeoutError):
        transfer.wait(layer=3, timeout=0.02)
    go_on.set()
    transfer.wait(timeout=5)
    assert torch.equal(destination, source.tensor)


def test_a_demanded_load_overtakes_a_prefetch_between_layers():
    link = Link(gbps=block().numel() * 4 / 0.12 / 1e9)  # 20 ms a layer
    ended = []
    prefetch = link.copy(
        "load", block(), block(), lambda _: ended.append("prefetch"), priority=PREFETCH
    )
    prefetch.wait(layer=0, timeout=5)
    demand = link.copy("load", block(), block(), lambda _: ended.append("demand"), priority=DEMAND)
    demand.wait(timeout=5)
    assert ended == ["demand"]
    prefetch.wait(timeout=5)
    link.close()


def test_a_paced_link_takes_the_time_of_its_rate_in_each_direction_at_once():
    n_bytes = block().numel() * 4
    link = Link(gbps=n_bytes / 0.2 / 1e9, timeline=Timeline())
    assert link.emulated
    start = time.perf_counter()
    there, back = (link.copy(way, block(), block()) for way in ("load", "offload"))
    there.wait(timeout=5)
    back.wait(timeout=5)
    assert 0.2 <= time.perf_counter() - start < 0.38  # 0.4 if one had waited for the other
    assert 0.18 < link.timeline.busy("load") < 0.38
    assert [span.amount for span in link.timeline.spans("offload")] == [n_bytes]
    link.close()


def test_sleeping_too_long_does_not_add_up_over_the_layers():
    source = torch.zeros(400, 2, 1, 1, 1)
    link = Link(gbps=source.numel() * 4 / 0.2 / 1e9)  # 0.5 ms a layer
    start = time.perf_counter()
    link.copy("load", source, torch.empty_like(source)).wait(timeout=5)
    assert 0.199 <= time.perf_counter() - start < 0.3
    link.close()


@pytest.mark.parametrize("error", [OSError("no"), SystemExit(), MemoryError()])
def test_what_ends_a_copy_does_not_end_the_thread(link, error):
    def unreadable():
        raise error

    ended = []
    failed = link.copy("load", unreadable, block(), lambda transfer: ended.append(transfer.error))
    with pytest.raises(TransferFailed):
        failed.wait(timeout=5)
    assert ended == [error]
    destination = block()
    link.copy("load", block(2.0), destination).wait(timeout=5)
    assert torch.equal(destination, block(2.0))


def test_closing_fails_what_is_under_way():
    link = Link(gbps=1e-6)
    transfers = [link.copy("load", block(), block()) for _ in range(3)]
    threading.Thread(target=link.close).start()
    link.gbps = None
    for transfer in transfers[1:]:
        with pytest.raises(TransferFailed, match="closed"):
            transfer.wait(timeout=30)
    with pytest.raises(RuntimeError, match="link: closed"):
        link.copy("load", block(), block())


def test_bad_arguments_say_what_is_wanted(link):
    with pytest.raises(ValueError, match="direction: got 'up', wants one of load, offload"):
        link.copy("up", block(), block())
    with pytest.raises(ValueError, match="gbps: got 0, wants a finite number > 0"):
        Link(gbps=0)
