from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from safetensors.torch import save

from assay.papers.rac.checkpoints import load_state, save_state


def same(first, second):
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert list(first) == list(second)
        return all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        assert len(first) == len(second)
        return all(map(same, first, second))
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    return first == second


def test_states_come_back_as_they_went(tmp_path):
    net = torch.nn.GRU(3, 4)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    net(torch.ones(2, 3))[0].sum().backward()
    optimizer.step()
    shared = torch.arange(6.0)
    state = {
        "net": dict(net.state_dict()),
        "optimizer": optimizer.state_dict(),
        "numpy": np.random.default_rng(3).bit_generator.state,
        "torch": torch.Generator().manual_seed(5).get_state(),
        "edges": np.array([-math.inf, 0.0, 2.5]),
        "views": (shared[::2], shared.view(2, 3).T, torch.tensor(3)),
        "flags": np.zeros((0, 2), bool),
        "config": {"name": "rac", "bins": 4, "beta": None, "best": -math.inf, "on": True},
    }
    save_state(tmp_path / "agent_0.best", state)
    assert [path.name for path in tmp_path.iterdir()] == ["agent_0.best.safetensors"]
    assert same(load_state(tmp_path / "agent_0.best"), state)


def test_what_could_hold_code_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"state\.policy: got function"):
        save_state(tmp_path / "a", {"policy": lambda: 0})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "broken", ["{", '{"odd": 1}', '{"tensor": "y"}', "[", '{"dict": 3}', '{"dict": [[1]]}', None]
)
def test_damaged_states_are_named(tmp_path, broken):
    metadata = None if broken is None else {"state": broken}
    (tmp_path / "a.safetensors").write_bytes(save({"x": torch.ones(3)}, metadata))
    with pytest.raises(ValueError, match=r"a\.safetensors: no state"):
        load_state(tmp_path / "a")


def test_short_and_missing_files_are_named(tmp_path):
    save_state(tmp_path / "a", {"x": torch.ones(3)})
    file = tmp_path / "a.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"a\.safetensors: no state"):
        load_state(tmp_path / "a")
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.safetensors"):
        load_state(tmp_path / "a")


def test_names_that_look_alike_are_kept_apart(tmp_path):
    state = {"a": {"b": torch.zeros(1)}, "a.b": torch.ones(1), 1: np.zeros(2), "1": np.ones(2)}
    save_state(tmp_path / "a", state)
    assert same(load_state(tmp_path / "a"), state)


def test_keys_that_do_not_come_back_are_refused(tmp_path):
    with pytest.raises(TypeError, match=r"state\.a: got the key \(1, 2\), wants strings and"):
        save_state(tmp_path / "a", {"a": {(1, 2): 3}})
