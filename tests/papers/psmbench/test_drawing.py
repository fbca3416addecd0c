"""Drawings: every state and label is on it, and no label covers a state."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from assay.papers.psmbench import ProtocolStateMachine, draw
from assay.papers.psmbench.synthetic import random_machine


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def test_states_and_labels_are_on_the_drawing(handshake, tmp_path):
    figure = draw(handshake, tmp_path / "m.svg", title="Handshake")
    found = texts(figure)
    assert set(handshake.states) <= set(found)
    assert {"receive SYN\n/ send SYN ACK", "passive open", "Handshake"} <= set(found)
    root = ElementTree.parse(tmp_path / "m.svg").getroot()
    assert root.tag.endswith("svg")
    assert [path.name for path in tmp_path.iterdir()] == ["m.svg"]


@pytest.mark.parametrize("ending", [".png", ".pdf", ".SVG"])
def test_other_formats(handshake, tmp_path, ending):
    draw(handshake, tmp_path / f"m{ending}")
    assert (tmp_path / f"m{ending}").stat().st_size > 1000


def test_crowded_machines_get_numbers_and_a_list(make_machine):
    machine = make_machine(*[("A", f"event {i}", f"action {i}", "B") for i in range(6)])
    found = texts(draw(machine))
    assert "1-6" in found
    assert any("6  event 5 / action 5" in text for text in found)
    assert "1-6" not in texts(draw(machine, labels="full"))


@pytest.mark.parametrize("seed", range(4))
def test_labels_and_states_do_not_cover_one_another(seed):
    machine = random_machine(8, 12, np.random.default_rng(seed))
    figure = draw(machine, labels="full")
    figure.canvas.draw()
    boxes = {
        index: (text.get_text(), text.get_window_extent())
        for index, text in enumerate(figure.axes[0].texts)
        if text.get_text()
    }
    states = {i: box for i, (text, box) in boxes.items() if text in machine.states}
    assert len(states) == 8
    covered = [
        (boxes[i][0], boxes[j][0])
        for i in states
        for j in boxes
        if i != j and states[i].overlaps(boxes[j][1])
    ]
    assert covered == []
    whole = figure.bbox
    for text, box in boxes.values():
        assert whole.x0 <= box.x0, text
        assert box.x1 <= whole.x1, text
        assert whole.y0 <= box.y0, text
        assert box.y1 <= whole.y1, text


def test_odd_machines_are_drawn(make_machine):
    draw(make_machine(("A", "", "", "A")))
    draw(ProtocolStateMachine(states=["only"], transitions=[]))
    odd = make_machine(("A", "e", "x", "Undeclared"), states=["A", "Island", "$m_2$"])
    odd.initial_state = "Nowhere"
    assert {"Undeclared", "Island"} <= set(texts(draw(odd)))


def test_wrong_arguments_are_refused(handshake, tmp_path):
    with pytest.raises(ValueError, match=r"path: got ending '\.gif'"):
        draw(handshake, tmp_path / "m.gif")
    with pytest.raises(ValueError, match="labels: got 'none'"):
        draw(handshake, labels="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no states"):
        draw(ProtocolStateMachine(states=[], transitions=[]))
    with pytest.raises(OSError, match="missing"):
        draw(handshake, tmp_path / "missing" / "m.svg")
