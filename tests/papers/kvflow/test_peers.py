"""Adapters for other engines, against small engines with the same interfaces.

Where an engine is installed, its own interface and built-in policies are tested as well.
"""

import heapq
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from assay.papers.kvflow.peers import lmcache, sglang, vllm
from assay.papers.kvflow.peers.hints import BlockHints, PrefixHints, steps_of

HEADER, PLAN, WRITE = (1, 2, 3), (10, 11, 12, 13), (20, 21)


class TestPrefixHints:
    def told(self):
        hints = PrefixHints()
        hints.tell("app", "plan", (*HEADER, *PLAN, 99), 7, {"plan": 4, "write": 1})
        hints.tell("app", "write", HEADER + WRITE, 5, {})
        return hints

    def test_a_prefix_takes_the_smallest_of_its_users(self):
        hints = self.told()
        assert hints.priority(HEADER) == 1
        assert hints.priority(HEADER[:2]) == 1
        assert hints.priority(HEADER + PLAN) == hints.priority(HEADER + PLAN[:2]) == 4
        assert hints.priority(HEADER + WRITE) == 1
        hints.tell("app", "plan", HEADER + PLAN, 7, {"plan": 0, "write": math.inf})
        assert hints.priority(HEADER) == 0
        assert hints.priority(HEADER + WRITE) == math.inf

    def test_what_is_of_no_fixed_prompt_goes_first(self):
        hints = self.told()
        assert hints.priority((*HEADER, *PLAN, 99)) == math.inf
        assert hints.priority((7, 8)) == hints.priority(()) == math.inf

    def test_a_changed_prompt_replaces_the_old_one(self):
        hints = self.told()
        hints.tell("app", "plan", (*HEADER, 50, 51), 5, {})
        assert hints.priority(HEADER + PLAN) == math.inf
        assert hints.priority((*HEADER, 50, 51)) == 4
        assert hints.longest == 5

    def test_agents_of_one_name_in_two_clients_do_not_meet(self):
        hints = self.told()
        hints.tell("other", "plan", (70, 71), 2, {"plan": 9})
        assert (hints.priority((70, 71)), hints.priority(HEADER + PLAN)) == (9, 4)

    def test_wrong_values_are_refused(self):
        with pytest.raises(ValueError, match="fixed_tokens: got 3, wants at most 2"):
            PrefixHints().tell("c", "a", [1, 2], 3, {})
        with pytest.raises(ValueError, match=r"steps\['a'\]"):
            PrefixHints().tell("c", "a", [1, 2], 1, {"a": -1})


class TestBlockHints:
    def test_a_block_takes_the_smallest_of_its_users(self):
        hints = BlockHints()
        hints.tell("app", "plan", ["h", "p"], {"plan": 4, "write": 1})
        hints.tell("app", "write", ["h", "w"], {})
        assert [hints.priority(key) for key in "hpwx"] == [1, 4, 1, math.inf]
        hints.tell("app", "write", [], {"write": 7})
        assert [hints.priority(key) for key in "hpw"] == [4, 4, 7]
        hints.tell("app", "plan", ["q"], {})
        assert [hints.priority(key) for key in "hpq"] == [7, math.inf, 4]

    def test_wrong_values_are_refused(self):
        with pytest.raises(ValueError, match=r"steps\['a'\]: got -1"):
            BlockHints().tell("c", "a", [1], {"a": -1})

    def test_null_is_infinity(self):
        assert steps_of({"steps": {"a": None, "b": 2}}) == {"a": math.inf, "b": 2}
        assert steps_of({}) == {}


class EvictionStrategy(ABC):
    """SGLang's interface."""

    @abstractmethod
    def get_priority(self, node): ...


class SGLangTree:
    """The parts of a tree of SGLang that a strategy meets; evicts leaves from a heap as it does."""

    def __init__(self):
        self.eviction_strategy = None
        self.root = SimpleNamespace(key=SimpleNamespace(token_ids=[]), parent=None, children=[])
        self.clock = 0

    def insert(self, ids, parent=None):
        parent = parent or self.root
        self.clock += 1
        node = SimpleNamespace(
            key=SimpleNamespace(token_ids=list(ids)),
            parent=parent,
            children=[],
            last_access_time=self.clock,
            name=ids[0],
        )
        parent.children.append(node)
        return node

    def match_prefix(self, params):
        return params.key

    def evict_all(self):
        heap, todo, order = [], [self.root], []

        def push(node):
            priority = self.eviction_strategy.get_priority(node)
            heapq.heappush(heap, (priority, node.last_access_time, id(node), node))

        while todo:
            node = todo.pop()
            todo += node.children
            if not node.children:
                push(node)
        while heap:
            node = heapq.heappop(heap)[-1]
            order.append(node.name)
            node.parent.children.remove(node)
            if not node.parent.children and node.parent is not self.root:
                push(node.parent)
        return order


def sglang_request(hint, ids=HEADER + PLAN):
    params = None if hint is None else {"x_agent": hint}
    request = SimpleNamespace(
        origin_input_ids=list(ids), sampling_params=SimpleNamespace(custom_params=params)
    )
    return SimpleNamespace(key="key", req=request)


class TestSGLang:
    def test_suffixes_go_first_then_what_is_needed_last(self):
        tree = SGLangTree()
        hints = sglang.attach(tree, base=EvictionStrategy)
        assert isinstance(tree.eviction_strategy, EvictionStrategy)
        header = tree.insert(HEADER)
        write = tree.insert(WRITE, header)
        plan = tree.insert(PLAN, header)
        tree.insert((90, 91), plan)
        tree.insert((80,), write)
        hint = {"client": "c", "agent": "plan", "fixed_tokens": 7, "steps": {"plan": 0, "write": 3}}
        assert tree.match_prefix(sglang_request(hint)) == "key"
        hints.tell("c", "write", HEADER + WRITE, 5, {})
        # Suffixes, oldest first; then the writer's prompt, the planner's, and what both share.
        assert tree.evict_all() == [90, 80, 20, 10, 1]

    def test_without_hints_the_order_is_that_of_use(self):
        tree = SGLangTree()
        sglang.attach(tree, base=EvictionStrategy)
        for i in range(5):
            tree.insert((i, 7))
        tree.match_prefix(sglang_request(None))
        tree.match_prefix(SimpleNamespace(key="key"))
        assert tree.evict_all() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(
        "hint", [{"client": "c"}, {"client": "c", "agent": "a", "fixed_tokens": 99}, "text", [1]]
    )
    def test_a_wrong_hint_is_logged_and_the_request_goes_on(self, hint, caplog):
        tree = SGLangTree()
        hints = sglang.attach(tree, base=EvictionStrategy)
        assert tree.match_prefix(sglang_request(hint)) == "key"
        assert "x_agent: ignored" in caplog.text
        assert hints.longest == 0

    def test_the_unified_tree_keeps_its_strategy_in_its_core(self):
        tree = SGLangTree()
        unified = SimpleNamespace(tree_core=tree, match_prefix=tree.match_prefix)
        sglang.attach(unified, base=EvictionStrategy)
        assert tree.eviction_strategy is not None

    def test_a_tree_without_a_strategy_is_refused(self):
        with pytest.raises(TypeError, match="wants a tree with eviction_strategy"):
            sglang.attach(SimpleNamespace(match_prefix=None), base=EvictionStrategy)

    def test_the_installed_engine(self):
        policies = pytest.importorskip("sglang.srt.mem_cache.evict_policy")
        strategy = sglang.make_strategy(PrefixHints())
        assert isinstance(strategy, policies.EvictionStrategy)
        tree = SGLangTree()
        for i in range(3):
            tree.insert((i, 7))
        tree.eviction_strategy = policies.LRUStrategy()
        lru = tree.evict_all()
        for i in range(3):
            tree.insert((i, 7))
        tree.eviction_strategy = strategy
        assert tree.evict_all() == lru


class CachePolicy(ABC):
    """vLLM's interface."""

    @abstractmethod
    def __init__(self, cache_capacity): ...

    @abstractmethod
    def get(self, key): ...

    @abstractmethod
    def insert(self, key, block): ...

    @abstractmethod
    def remove(self, key): ...

    @abstractmethod
    def touch(self, keys, req_context): ...

    @abstractmethod
    def evict(self, n, protected): ...

    @abstractmethod
    def clear(self): ...


def vllm_context(agent, steps, fixed_tokens=48):
    hint = {"client": "c", "agent": agent, "fixed_tokens": fixed_tokens, "steps": steps}
    return SimpleNamespace(kv_transfer_params={"x_agent": {**hint, "block_tokens": 16}})


class TestVLLM:
    @pytest.fixture
    def policy(self):
        policy = vllm.make_policy_class(CachePolicy)(cache_capacity=10)
        for key in ("p0", "p1", "p2", "p-suffix", "w0", "w1", "w2", "w-suffix"):
            policy.insert(key, SimpleNamespace(ref_cnt=0))
        policy.touch(["p0", "p1", "p2", "p-suffix"], vllm_context("plan", {"plan": 0, "write": 1}))
        policy.touch(["w0", "w1", "w2", "w-suffix"], vllm_context("write", {"plan": 2, "write": 0}))
        return policy

    def test_suffixes_go_first_then_what_is_needed_last_from_its_end(self, policy):
        order = [key for key, _ in policy.evict(8, set(), None, 0)]
        assert order == ["p-suffix", "w-suffix", "p2", "p1", "p0", "w2", "w1", "w0"]
        assert policy.get("p0") is None

    def test_blocks_in_use_and_protected_ones_stay(self, policy):
        policy.get("p-suffix").ref_cnt = 1
        policy.get("w-suffix").ref_cnt = -1
        assert [key for key, _ in policy.evict(2, {"p2"})] == ["p1", "p0"]

    def test_nothing_is_evicted_where_not_enough_can_be(self, policy):
        assert policy.evict(8, {"w0"}) is None
        assert policy.get("p0") is not None

    def test_without_hints_the_order_is_that_of_use(self):
        policy = vllm.make_policy_class(CachePolicy)(10)
        for key in "abc":
            policy.insert(key, SimpleNamespace(ref_cnt=0))
        policy.touch(["a"], None)
        assert [key for key, _ in policy.evict(3, set())] == ["b", "c", "a"]

    @pytest.mark.parametrize("params", [{"x_agent": {"client": "c"}}, {"x_agent": "text"}])
    def test_a_wrong_hint_is_logged_and_the_request_goes_on(self, policy, params, caplog):
        policy.touch(["p0"], SimpleNamespace(kv_transfer_params=params))
        assert "x_agent: ignored" in caplog.text

    def test_removing_and_clearing(self, policy):
        policy.remove("p0")
        assert policy.get("p0") is None
        policy.clear()
        assert policy.evict(0, set()) == []
        assert policy.evict(1, set()) is None

    def test_a_prefetch_asks_for_one_token(self):
        body = vllm.prefetch_body("m", (1, 2))
        assert (body["prompt"], body["max_tokens"]) == ([1, 2], 1)
        with pytest.raises(ValueError, match="fixed_ids"):
            vllm.prefetch_body("m", [])

    def test_the_installed_engine(self):
        base = pytest.importorskip("vllm.v1.kv_offload.cpu.policies.base")
        assert issubclass(vllm.StepsCachePolicy, base.CachePolicy)
        vllm.StepsCachePolicy(cache_capacity=4)


class BaseCachePolicy(ABC):
    """LMCache's interface."""

    @abstractmethod
    def init_mutable_mapping(self): ...

    @abstractmethod
    def update_on_hit(self, key, cache_dict): ...

    @abstractmethod
    def update_on_put(self, key): ...

    @abstractmethod
    def update_on_force_evict(self, key): ...

    @abstractmethod
    def get_evict_candidates(self, cache_dict, num_candidates=1): ...


class TestLMCache:
    @pytest.mark.parametrize("installed", [False, True])
    def test_suffixes_go_first_then_what_is_needed_last(self, installed):
        base = BaseCachePolicy
        if installed:
            base = pytest.importorskip(
                "lmcache.v1.storage_backend.cache_policy.base_policy"
            ).BaseCachePolicy
        hints = BlockHints()
        policy = lmcache.make_policy_class(hints, base)()
        store = policy.init_mutable_mapping()
        assert isinstance(store, OrderedDict)
        for key in ("plan", "write", "suffix", "pinned"):
            store[key] = SimpleNamespace(can_evict=key != "pinned")
            policy.update_on_put(key)
        hints.tell("c", "plan", ["plan"], {"plan": 1, "write": 3})
        hints.tell("c", "write", ["write"], {})
        assert policy.get_evict_candidates(store, 9) == ["suffix", "write", "plan"]
        assert policy.get_evict_candidates(store) == ["suffix"]
        hints.tell("c", "plan", [], {"plan": 3})
        policy.update_on_hit("plan", store)
        assert policy.get_evict_candidates(store, 9) == ["suffix", "write", "plan"]
        policy.update_on_hit("write", store)
        assert policy.get_evict_candidates(store, 2) == ["suffix", "plan"]

    def test_the_installed_engine(self):
        table = pytest.importorskip("lmcache.v1.storage_backend.cache_policy").POLICY_MAPPING
        hints = lmcache.register("KVFLOW-TEST")
        try:
            assert isinstance(hints, BlockHints)
            with pytest.raises(ValueError, match="taken"):
                lmcache.register("KVFLOW-TEST")
        finally:
            del table["KVFLOW-TEST"]


@pytest.mark.parametrize(
    ("make", "package"),
    [
        (lambda: sglang.make_strategy(PrefixHints()), "sglang"),
        (lambda: vllm.StepsCachePolicy, "vllm"),
        (lambda: lmcache.make_policy_class(BlockHints()), "lmcache"),
    ],
)
def test_an_engine_that_is_not_installed_is_named(make, package):
    try:
        __import__(package)
    except ImportError:
        with pytest.raises(ImportError, match=package):
            make()
    else:
        pytest.skip(f"{package} is installed")
