"""The soak, shortly: it finds nothing, and what there is to find it finds."""

from __future__ import annotations

from assay.papers.kvflow import Lease, soak


def test_a_short_soak_is_sound():
    lines = []
    assert soak.run(2 / 60, n_clients=2, every=0.4, tell=lines.append) == []
    assert "'answers'" in lines[-2]
    assert lines[-1].startswith("memory: ")


def test_wrong_tokens_and_errors_are_found(monkeypatch):
    monkeypatch.setattr(soak, "CHECK_SHARE", 1.0)
    monkeypatch.setattr(soak, "FAULT_SHARE", 0.0)

    def broken(self, layer):
        return [0 * block for block in intact(self, layer)]

    intact = Lease.layer
    monkeypatch.setattr(Lease, "layer", broken)
    wrong = soak.run(2 / 60, n_clients=2, every=2.0, tell=lambda line: None)
    assert any(line.startswith("answer: got") for line in wrong)
