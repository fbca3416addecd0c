"""Steps to execution: joins, loops, branches, what is refused, and graphs of other libraries."""

import math
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.papers.kvflow.step_graph import StepGraph


def cycle(n):
    graph = StepGraph()
    for i in range(n):
        graph.add(f"a{i}", [f"a{i - 1}"] if i else [])
    return graph.loop(f"a{n - 1}", "a0")


def fan(join):
    return StepGraph().add("P").add("E1", ["P"]).add("E2", ["P"]).add("X", ["E1", "E2"], join)


def diamond(join):
    graph = StepGraph().add("P").add("short", ["P"]).add("long1", ["P"])
    graph.add("long2", ["long1"]).add("long3", ["long2"])
    return graph.add("X", ["short", "long3"], join)


@pytest.mark.parametrize("join", ["all", "any"])
def test_joins_agree_when_both_arms_have_one_step(join):
    assert fan(join).steps(["P"]) == {"P": 0, "E1": 1, "E2": 1, "X": 2}


def test_a_finished_predecessor_counts_as_zero():
    assert fan("all").steps(["P"], done=["E2"])["X"] == 2
    assert fan("any").steps(["P"], done=["E2"])["X"] == 1
    assert fan("all").steps(["E1"], done=["P", "E2"]) == {
        "P": math.inf,
        "E1": 0,
        "E2": math.inf,
        "X": 1,
    }


@pytest.mark.parametrize(("join", "value"), [("any", 2), ("all", 4), (None, 4), (max, 4), (min, 2)])
def test_a_diamond_with_arms_of_one_and_three_steps(join, value):
    assert diamond(join).steps(["P"])["X"] == value


def test_a_join_function_sees_the_values_in_order():
    seen = []

    def second_of_two(values):
        seen.append(values)
        return sorted(values)[1]

    assert diamond(second_of_two).steps(["P"])["X"] == 4
    assert seen[-1] == [1, 3]


def test_what_does_not_follow_is_infinitely_far():
    graph = StepGraph().add("a").add("b", ["a"]).add("other")
    assert graph.steps(["b"]) == {"a": math.inf, "b": 0, "other": math.inf}
    assert graph.steps([]) == dict.fromkeys(["a", "b", "other"], math.inf)


def test_a_running_agent_of_a_cycle_has_zero_now_and_the_cycle_as_next_use():
    graph = cycle(5)
    assert graph.steps(["a2"]) == {"a0": 3, "a1": 4, "a2": 0, "a3": 1, "a4": 2}
    assert graph.next_use(["a2"]) == {"a0": 3, "a1": 4, "a2": 5, "a3": 1, "a4": 2}
    assert graph.steps(["a3"], done=["a2"])["a2"] == 4


def test_an_agent_that_loops_on_itself_is_one_step_from_its_next_run():
    assert StepGraph().add("a").loop("a", "a").next_use(["a"]) == {"a": 1}


def test_a_finished_agent_does_not_wait_on_its_own_finished_predecessor():
    graph = cycle(3)
    assert graph.steps(["a2"], done=["a0", "a1"]) == {"a0": 1, "a1": 2, "a2": 0}


def test_an_and_join_inside_a_loop_comes_round_after_both_arms():
    graph = fan("all").loop("X", "P")
    assert graph.next_use(["X"], done=["P", "E1", "E2"]) == {"P": 1, "E1": 2, "E2": 2, "X": 3}


def test_the_alternatives_of_a_branch_wait_until_one_has_started():
    graph = StepGraph().add("R").add("A").add("B").add("X", ["A", "B"], "any")
    graph.branch("R", ["A", "B"])
    assert graph.steps(["R"]) == {"R": 0, "A": 1, "B": 1, "X": 2}
    assert graph.steps([], done=["R"]) == {"R": math.inf, "A": 1, "B": 1, "X": 2}
    assert graph.steps(["A"], done=["R"]) == {"R": math.inf, "A": 0, "B": math.inf, "X": 1}


def brute_force(after, joins, running):
    values = {agent: 0.0 if agent in running else math.inf for agent in after}
    for _ in after:
        for agent in after:
            if agent not in running and after[agent]:
                values[agent] = joins[agent](values[before] for before in after[agent]) + 1
    return values


@given(st.data())
def test_values_are_the_solution_of_the_recursion(data):
    n = data.draw(st.integers(1, 8))
    agents = [str(i) for i in range(n)]
    after = {
        a: data.draw(st.lists(st.sampled_from(agents[:i]), unique=True)) if i else []
        for i, a in enumerate(agents)
    }
    joins = {a: data.draw(st.sampled_from([min, max])) for a in agents}
    running = set(data.draw(st.lists(st.sampled_from(agents), min_size=1)))
    graph = StepGraph()
    for agent in data.draw(st.permutations(agents)):
        names = {min: "any", max: "all"}
        graph.add(agent, after[agent], names[joins[agent]] if after[agent] else None)
    assert graph.steps(running) == brute_force(after, joins, running)


def test_a_cycle_without_a_loop_edge_is_refused_by_name():
    graph = StepGraph().add("a").add("b", ["a", "c"]).add("c", ["b"])
    with pytest.raises(ValueError, match=r"agent '[bc]': can never start.*loop"):
        graph.steps(["a"])
    with pytest.raises(ValueError, match="agent 'a': can never start"):
        StepGraph().add("a", ["a"]).validate()


def test_an_and_join_over_alternatives_is_refused_by_name():
    graph = StepGraph().add("R").add("A").add("B").add("C", ["B"]).add("X", ["A", "C"])
    graph.branch("R", ["A", "B"])
    with pytest.raises(ValueError, match=r"agent 'X': its join can never fire.*'A', 'B'.*'R'"):
        graph.validate()


def test_an_and_join_over_alternatives_may_fire_in_a_later_round():
    graph = StepGraph().add("R").add("A").add("B").add("X", ["A", "B"])
    graph.branch("R", ["A", "B"]).loop("A", "R")
    graph.validate()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: g.add("b", ["nobody"]), "agent 'b': it comes after 'nobody'"),
        (lambda g: g.add("b", join="all"), "agent 'b': its join has no predecessor"),
        (lambda g: g.add("a"), "agent: got 'a' twice"),
        (lambda g: g.add("b", ["a", "a"]), "after: got"),
        (lambda g: g.add("b", ["a"], "most"), "join of 'b': got 'most'"),
        (lambda g: g.branch("a", []), "dsts of 'a'"),
        (lambda g: g.branch("a", ["nobody"]), "branch at 'a': 'nobody'"),
        (lambda g: g.loop("a", "nobody"), "'nobody' is no agent"),
        (lambda g: g.add("b").loop("a", "b"), "nothing goes back"),
        (lambda g: g.add("b", ["a"], lambda v: -1), "join of 'b': returned -1"),
        (lambda g: g.add("b", ["a"], lambda v: 0.5), "join of 'b': returned 0.5"),
        (lambda g: g.add("b", ["a"], lambda v: math.nan), "join of 'b': returned nan"),
        (lambda g: g.add("b", ["a"], lambda v: "x"), "join of 'b': returned 'x'"),
    ],
)
def test_wrong_graphs_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(StepGraph().add("a")).steps(["a"])


def test_wrong_names_are_refused():
    graph = StepGraph().add("a")
    with pytest.raises(TypeError, match="agent: got 3"):
        graph.add(3)
    with pytest.raises(TypeError, match="after: got the string 'a'"):
        graph.add("b", "a")
    with pytest.raises(ValueError, match="active: got 'b'"):
        graph.steps(["b"])
    with pytest.raises(ValueError, match="done: got 'b'"):
        graph.steps(["a"], done=["b"])


def test_a_run_starts_what_is_ready_and_counts_from_what_runs():
    run = fan("all").run()
    assert run.steps() == {"P": 1, "E1": 2, "E2": 2, "X": 3}
    run.start("P")
    assert run.steps() == {"P": 0, "E1": 1, "E2": 1, "X": 2}
    run.finish("P")
    assert run.ready == ("E1", "E2")
    run.start("E1")
    run.start("E2")
    run.finish("E1")
    assert run.ready == ()
    assert run.steps() == {"P": math.inf, "E1": math.inf, "E2": 0, "X": 1}
    run.finish("E2")
    assert run.ready == ("X",)
    with pytest.raises(ValueError, match="ready"):
        run.start("P")
    with pytest.raises(ValueError, match="one that runs"):
        run.finish("X")


def test_a_run_goes_back_over_a_loop_or_on():
    graph = StepGraph().add("write").add("review", ["write"]).add("publish", ["review"])
    graph.loop("review", "write")
    run = graph.run()
    for _ in range(3):
        for agent in ("write", "review"):
            run.start(agent)
            run.finish(agent, ["write"] if agent == "review" else [])
        assert run.ready == ("write",)
    run.start("write")
    assert run.steps() == {"write": 0, "review": 1, "publish": 2}
    run.finish("write")
    run.start("review")
    assert run.options("review") == ("write",)
    with pytest.raises(ValueError, match=r"then: got \['publish'\]"):
        run.finish("review", ["publish"])
    run.finish("review")
    assert run.ready == ("publish",)


def test_a_run_starts_only_the_chosen_alternative():
    graph = StepGraph().add("R").add("A").add("B").branch("R", ["A", "B"])
    run = graph.run()
    run.start("R")
    run.finish("R", ["B"])
    assert run.ready == ("B",)
    assert run.steps() == {"R": math.inf, "A": math.inf, "B": 1}


def test_an_or_join_is_started_by_the_first_that_finishes():
    run = fan("any").run()
    run.start("P")
    run.finish("P")
    run.start("E1")
    run.start("E2")
    run.finish("E1")
    assert run.ready == ("X",)


def test_a_networkx_graph():
    networkx = pytest.importorskip("networkx")
    g = networkx.DiGraph()
    g.add_node("X", join="any")
    g.add_edge("R", "A", branch=True)
    g.add_edge("R", "B", branch=True)
    g.add_edges_from([("A", "X"), ("B", "X")])
    g.add_edge("X", "R", loop=True)
    graph = StepGraph.from_networkx(g)
    assert graph.next_use(["R"]) == {"X": 2, "R": 3, "A": 1, "B": 1}
    assert graph.steps(["A"], done=["R"])["B"] == 3
    with pytest.raises(TypeError, match="DiGraph"):
        StepGraph.from_networkx(networkx.Graph())
    with pytest.raises(ValueError, match="can never start"):
        StepGraph.from_networkx(networkx.DiGraph([(0, 1), (1, 0)]))


@pytest.fixture
def langgraph():
    return pytest.importorskip("langgraph.graph")


class State(TypedDict):
    text: str


def build(langgraph, nodes, edges, conditional=()):
    made = langgraph.StateGraph(State)
    for node in nodes:
        made.add_node(node, lambda state: state)
    for src, dst in edges:
        made.add_edge(src, dst)
    for src, dsts in conditional:
        made.add_conditional_edges(src, lambda state: None, list(dsts))
    return made.compile()


def test_a_langgraph_graph_with_a_waiting_edge_and_a_loop(langgraph):
    app = build(
        langgraph,
        ["plan", "e1", "e2", "e2b", "join", "review"],
        [
            (langgraph.START, "plan"),
            ("plan", "e1"),
            ("plan", "e2"),
            ("e2", "e2b"),
            (["e1", "e2b"], "join"),
            ("join", "review"),
        ],
        [("review", ["plan", langgraph.END])],
    )
    graph = StepGraph.from_langgraph(app)
    assert graph.steps(["plan"]) == {"plan": 0, "e1": 1, "e2": 1, "e2b": 2, "join": 3, "review": 4}
    assert graph.next_use(["review"])["review"] == 5


def test_a_langgraph_node_without_a_waiting_edge_starts_with_any(langgraph):
    app = build(
        langgraph,
        ["a", "b", "c", "d"],
        [(langgraph.START, "a"), ("a", "b"), ("b", "c"), ("a", "d"), ("c", "d")],
    )
    assert StepGraph.from_langgraph(app).steps(["a"])["d"] == 1


def test_a_langgraph_node_with_both_kinds_of_edge(langgraph):
    app = build(
        langgraph,
        ["a", "b", "c", "late", "d"],
        [
            (langgraph.START, "a"),
            ("a", "b"),
            ("a", "c"),
            ("c", "late"),
            (["b", "late"], "d"),
            ("c", "d"),
        ],
    )
    graph = StepGraph.from_langgraph(app)
    assert graph.steps(["a"])["d"] == 2
    assert graph.steps(["b", "late"], done=["a"])["d"] == 1


def test_a_langgraph_router_is_a_branch_unless_both_targets_are_awaited(langgraph):
    edges = [(langgraph.START, "r")]
    routed = [("r", ["x", "y"])]
    app = build(langgraph, ["r", "x", "y", "z"], [*edges, ("x", "z"), ("y", "z")], routed)
    graph = StepGraph.from_langgraph(app)
    assert graph.steps(["x"], done=["r"]) == {"r": math.inf, "x": 0, "y": math.inf, "z": 1}
    app = build(langgraph, ["r", "x", "y", "z"], [*edges, (["x", "y"], "z")], routed)
    graph = StepGraph.from_langgraph(app)
    assert graph.steps(["x"], done=["r"]) == {"r": math.inf, "x": 0, "y": 1, "z": 2}


def test_something_else_is_no_langgraph_graph():
    with pytest.raises(TypeError, match="compiled LangGraph"):
        StepGraph.from_langgraph(object())
