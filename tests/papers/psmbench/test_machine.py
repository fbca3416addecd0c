"""Reading, checking and exporting machines, malformed ones above all."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import networkx as nx
import pytest

from assay.papers.psmbench import MachineError, ProtocolStateMachine, Transition

GOOD = {
    "states": ["A", "B"],
    "initial_state": "A",
    "final_states": ["B"],
    "transitions": [{"from": "A", "event": "e", "action": "a", "to": "B"}],
}


def changed(**fields):
    return {**json.loads(json.dumps(GOOD)), **fields}


def test_a_file_comes_back_as_it_was(tmp_path):
    machine = ProtocolStateMachine.from_data(GOOD)
    machine.to_file(tmp_path / "m.json")
    assert ProtocolStateMachine.from_file(tmp_path / "m.json") == machine
    assert json.loads((tmp_path / "m.json").read_text()) == GOOD
    assert [path.name for path in tmp_path.iterdir()] == ["m.json"]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (changed(states=["A", None]), "states[1]:"),
        (changed(states="A"), "states:"),
        (changed(states=["A", 3]), "got a number '3'"),
        (changed(transitions=[{"from": "A", "action": "a", "to": "B"}]), "transitions[0].event: m"),
        (changed(transitions=[GOOD["transitions"][0], "A->B"]), "transitions[1]:"),
        (
            changed(transitions=[{"from": "A", "event": "e", "action": ["a"], "to": "B"}]),
            "transitions[0].action:",
        ),
        (changed(initial_state=None), "initial_state:"),
        (changed(nodes=[]), "nodes:"),
        ('{"states": [' + "x" * 100, 'got a string \'{"states": ['),
        ([1, 2], "got a list"),
        (None, "got null"),
    ],
)
def test_a_malformed_machine_is_refused_with_the_path_inside(data, where, tmp_path):
    with pytest.raises(MachineError) as caught:
        ProtocolStateMachine.from_data(data)
    assert where in str(caught.value)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    with pytest.raises(MachineError, match=r"bad\.json: ") as caught:
        ProtocolStateMachine.from_file(path)
    assert where in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe\x00", b"[1,"])
def test_a_file_that_is_not_json_is_refused(content, tmp_path):
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(MachineError, match=r"bad\.json: not"):
        ProtocolStateMachine.from_file(tmp_path / "bad.json")


def test_a_lenient_reading_repairs_and_says_so():
    machine = ProtocolStateMachine.from_data(
        {
            "states": ["A", None, 7],
            "transitions": [
                {"from": "A", "to": "B", "actions": ["x"], "event": ["p", "q"]},
                "A->B",
                {"from": None, "event": "e", "action": "a", "to": "B"},
            ],
        },
        lenient=True,
    )
    assert machine.states == ["A", "7"]
    assert machine.transitions[0] == Transition(source="A", event="p; q", action="", target="B")
    assert len(machine.transitions) == 2
    paths = [issue.path for issue in machine.repairs]
    assert paths == [
        "transitions[0].actions",
        "transitions[0].event",
        "transitions[0].action",
        "transitions[1]",
        "transitions[2].from",
        "states[1]",
        "states[2]",
        "initial_state",
        "final_states",
    ]
    assert ProtocolStateMachine.from_data(GOOD, lenient=True).repairs == ()


def test_a_lenient_reading_still_wants_an_object():
    with pytest.raises(MachineError, match="wants a JSON object"):
        ProtocolStateMachine.from_data("raw text", lenient=True)


def test_check_reports_errors_and_warnings(make_machine):
    machine = make_machine(
        ("A", "e", "x", "B"),
        ("A", "e", "y", "A"),
        ("A", "e", "x", "B"),
        ("C", "f", "", "Missing"),
        states=["A", "B", "C", "D", "B"],
    )
    machine.final_states = ["Nowhere"]
    machine.initial_state = "Start"
    found = {str(issue): issue.severity for issue in machine.check()}
    assert found == {
        "initial_state: 'Start' is not in states": "error",
        "final_states[0]: 'Nowhere' is not in states": "error",
        "transitions[3].to: 'Missing' is not in states": "error",
        "states[4]: repeats 'B'": "warning",
        "transitions[2]: repeats 'A --[e / x]--> B'": "warning",
        "states[3]: no transition uses 'D'": "warning",
        "transitions: 2 for event 'e' in state 'A'": "warning",
    }
    assert all(issue.severity == "error" for issue in machine.check(strict=False))
    machine.initial_state = "A"
    assert "states[2]: 'C' cannot be reached from 'A'" in map(str, machine.check())


def test_an_empty_machine_can_be_checked():
    machine = ProtocolStateMachine(states=[], transitions=[])
    assert [issue.path for issue in machine.check()] == ["states", "initial_state"]


def test_networkx_keeps_every_transition(handshake):
    graph = handshake.to_networkx()
    assert isinstance(graph, nx.MultiDiGraph)
    assert graph.number_of_edges() == 4
    assert graph.nodes["Closed"] == {"initial": True, "final": False}
    assert graph["Listening"]["Received"][0]["action"] == "send SYN ACK"


def test_dot_quotes_what_it_must(make_machine):
    text = make_machine(('say "hi"', "a\\b", "", "B\nC")).to_dot()
    assert '"say \\"hi\\"" -> "B\\nC" [label="a\\\\b"];' in text
    assert text.startswith("digraph")
    assert text.endswith("}\n")


def test_scxml_is_well_formed_and_refers_to_states_that_exist(make_machine):
    machine = make_machine(
        ("FIN WAIT-1", "rcv <ACK>", "send & go", "FIN_WAIT-1"),
        ("FIN_WAIT-1", "", "", "1st"),
        states=["FIN WAIT-1", "FIN_WAIT-1", "1st"],
    )
    machine.final_states = ["FIN_WAIT-1", "1st"]
    root = ElementTree.fromstring(machine.to_scxml().encode())
    space = {"s": "http://www.w3.org/2005/07/scxml"}
    ids = [element.get("id") for element in root]
    assert len(set(ids)) == 3
    assert root.get("initial") == ids[0]
    assert {t.get("target") for t in root.iterfind(".//s:transition", space)} <= set(ids)
    assert [e.get("id") for e in root.iterfind("s:final", space)] == ["s_1st"]
    names = [e.get("{urn:assay:psmbench}name") for e in root]
    assert names == machine.states


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "not JSON: nested too deeply"),
        (b'{"states": [' + b"9" * 5000 + b"]}", "not JSON: Exceeds the limit"),
        (
            b'{"states": ["\\ud800"], "transitions": []}',
            r"states\[0\]: Value error, a lone surrogate",
        ),
    ],
)
def test_hostile_files_are_named(tmp_path, content, message):
    path = tmp_path / "machine.json"
    path.write_bytes(content)
    with pytest.raises(MachineError, match=f"{path}: {message}"):
        ProtocolStateMachine.from_file(path)


def test_a_byte_order_mark_is_let_pass(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text('{"states": ["A"], "transitions": []}', "utf-8-sig")
    assert ProtocolStateMachine.from_file(path).states == ["A"]


def test_a_lenient_reading_replaces_lone_surrogates():
    data = {"states": ["\ud800"], "initial_state": "", "final_states": [], "transitions": []}
    machine = ProtocolStateMachine.from_data(data, lenient=True)
    assert machine.states == ["?"]
    assert machine.repairs[0].path == "states[0]"


def test_scxml_of_control_characters_is_well_formed():
    from xml.etree import ElementTree

    machine = ProtocolStateMachine(states=["\x00A\x1b"], transitions=[])
    ElementTree.fromstring(machine.to_scxml().encode())


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "missing" / "machine.json"
    with pytest.raises(FileNotFoundError) as caught:
        ProtocolStateMachine(states=["A"], transitions=[]).to_file(path)
    assert caught.value.filename == str(path)
