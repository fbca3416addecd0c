"""The tree against what a dict of prefixes would say, and oracle 3 on priorities."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.papers.kvflow.radix_tree import RadixTree, Status


class Text:
    """A payload that can be read back: one word per token."""

    def __init__(self, words):
        self.words = tuple(words)

    def split(self, n):
        return Text(self.words[:n]), Text(self.words[n:])


def words(ids):
    return Text(f"{i}:{token}" for i, token in enumerate(ids))


def held(tree, ids):
    """What the payloads on the path of ids say, cut to what matches."""
    match = tree.match(ids)
    found = [word for node in match.node.path() for word in node.payload.words]
    return found[: match.n_tokens]


prompts = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=12)


@settings(max_examples=60, deadline=None)
@given(inserted=prompts, asked=prompts, page=st.sampled_from([1, 2, 3]))
def test_a_match_is_the_longest_prefix_that_was_inserted(inserted, asked, page):
    tree = RadixTree(page_size=page)
    prefixes = {()}
    for ids in inserted:
        tree.insert(ids, words(ids))
        whole = len(ids) // page * page
        prefixes |= {tuple(ids[:n]) for n in range(0, whole + 1, page)}
    tree.check()
    for ids in [*asked, *inserted]:
        longest = max(n for n in range(len(ids) + 1) if tuple(ids[:n]) in prefixes)
        assert tree.match(ids).n_tokens == longest
        assert held(tree, ids) == list(words(ids[:longest]).words)
    assert sum(node.n_tokens for node in tree.nodes()) == len({p for p in prefixes if p}) * page


@settings(max_examples=60, deadline=None)
@given(data=st.data(), inserted=prompts)
def test_priority_of_a_node_is_the_smallest_of_its_users(data, inserted):
    tree = RadixTree()
    for ids in inserted:
        tree.insert(ids)
    steps = st.sampled_from([0, 1, 2, 5, math.inf])
    for round_ in range(3):
        for k, ids in enumerate(inserted):
            cut = data.draw(st.integers(0, len(ids)))
            tree.mark_fixed("app", f"a{k}", ids[:cut])
            tree.check()
        tree.update_steps("app", {f"a{k}": data.draw(steps) for k in range(len(inserted))})
        tree.check()
        if inserted and round_:
            tree.unmark("app", "a0")
            tree.check()
        leaves = [node for node in tree.nodes() if not node.children]
        if leaves:
            tree.remove(data.draw(st.sampled_from(leaves)))
            tree.check()


def test_shared_prefix_has_the_smaller_steps_and_then_the_other_agents():
    tree = RadixTree()
    planner, executor = [7] * 4 + [1] * 4, [7] * 4 + [2] * 4
    tree.insert([*planner, 50, 51])
    tree.insert([*executor, 60])
    tree.mark_fixed("app", "planner", planner)
    tree.mark_fixed("app", "executor", executor)
    tree.update_steps("app", {"planner": 3, "executor": 1})
    shared = tree.match(planner[:4]).node
    suffix = tree.match([*planner, 50, 51]).node
    assert (shared.priority, suffix.priority) == (1, math.inf)
    assert (shared.fixed, suffix.fixed) == (True, False)
    tree.unmark("app", "executor")
    assert shared.priority == 3
    tree.unmark("app", "planner")
    assert shared.priority == math.inf
    assert not shared.fixed


def test_agents_of_one_name_in_two_applications_do_not_clash():
    tree = RadixTree()
    tree.insert([1, 2, 3, 4])
    tree.mark_fixed("one", "writer", [1, 2])
    tree.mark_fixed("two", "writer", [1, 2, 3, 4])
    tree.update_steps("one", {"writer": 5})
    tree.update_steps("two", {"writer": 2})
    assert tree.match([1, 2]).node.priority == 2
    tree.update_steps("two", {"writer": 9})
    assert [tree.match([1, 2]).node.priority, tree.match([1, 2, 3, 4]).node.priority] == [5, 9]


def test_steps_told_before_the_prompt_is_known_count_once_it_is():
    tree = RadixTree()
    tree.update_steps("app", {"writer": 2})
    tree.insert([1, 2, 3])
    assert tree.mark_fixed("app", "writer", [1, 2]).priority == 2


def test_only_nodes_whose_priority_changed_are_reported():
    changed = []
    tree = RadixTree(on_change=changed.append)
    for agent in range(20):
        tree.insert([0, 0, agent + 1, 9])
        tree.mark_fixed("app", str(agent), [0, 0, agent + 1, 9])
    tree.update_steps("app", {str(agent): agent for agent in range(20)})
    changed.clear()
    tree.update_steps("app", {str(agent): agent + (agent == 7) for agent in range(20)})
    assert changed == [tree.fixed_end("app", "7")]


def test_mark_passes_to_what_is_left_of_a_fixed_prompt():
    tree = RadixTree()
    tree.insert([1, 2, 3, 4])
    tree.insert([1, 2, 8])
    tree.mark_fixed("app", "writer", [1, 2, 3, 4])
    tree.update_steps("app", {"writer": 4})
    tree.remove(tree.match([1, 2, 3, 4]).node)
    assert tree.fixed_end("app", "writer") is tree.match([1, 2]).node
    assert tree.match([1, 2]).node.priority == 4
    tree.insert([1, 2, 3, 4])
    tree.mark_fixed("app", "writer", [1, 2, 3, 4])
    assert tree.match([1, 2, 3, 4]).node.priority == 4


def test_locks_survive_a_split():
    tree = RadixTree()
    end = tree.insert([1, 2, 3, 4]).node
    tree.lock_path(end)
    tree.insert([1, 2, 9])
    assert [node.locks for node in end.path()] == [1, 1]
    tree.unlock_path(end)
    assert [node.locks for node in end.path()] == [0, 0]


def test_neither_the_root_nor_a_node_in_use_is_removed():
    tree = RadixTree()
    end = tree.insert([1, 2]).node
    tree.lock_path(end)
    with pytest.raises(ValueError, match="node: got the root"):
        tree.remove(tree.root)
    with pytest.raises(ValueError, match="wants one that no request uses"):
        tree.remove(end)
    tree.remove(end, force=True)
    tree.unlock_path(end)
    assert len(tree) == 0


def test_tokens_are_counted_where_they_can_be_read_from():
    tree = RadixTree()
    for ids in ([1, 2], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]):
        tree.insert(ids)
    first, second, third = tree.match([1, 2, 3, 4, 5, 6]).node.path()
    first.status = Status.OFFLOADING
    second.status, second.source = Status.LOADING, Status.ON_HOST
    third.status = Status.ON_DISK
    match = tree.match([1, 2, 3, 4, 5, 6, 7])
    assert (match.n_device, match.n_host, match.n_disk) == (2, 3, 1)


def test_arrays_are_ids_and_floats_are_none():
    tree = RadixTree()
    tree.insert(np.array([1, 2, 3]))
    assert tree.match([np.int64(1), 2]).n_tokens == 2
    with pytest.raises(TypeError, match=r"ids: got 2.5 among them, wants integers"):
        tree.match([1, 2.5])


@pytest.mark.parametrize("s", [-1, 1.5, math.nan, True])
def test_steps_that_are_no_count_name_their_agent(s):
    with pytest.raises(ValueError, match=r"steps\['writer'\]: got .*, wants an integer >= 0"):
        RadixTree().update_steps("app", {"writer": s})


def test_page_size_is_checked():
    with pytest.raises(ValueError, match="page_size: got 0, wants an integer >= 1"):
        RadixTree(page_size=0)


@pytest.mark.parametrize("value", ["2", None, [1]])
def test_steps_that_are_no_numbers_are_named(value):
    with pytest.raises(TypeError, match=r"steps\['a'\]: got .*, wants an integer >= 0"):
        RadixTree().update_steps("app", {"a": value})
