"""States of learners in files that hold no code: tensors as safetensors, the rest as JSON in them.

One file for both: a run that is killed while it saves leaves the old state or the new one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from assay.toolkits.files import write_bytes


def save_state(path: str | Path, state: dict[str, Any]) -> None:
    """Writes ``path.safetensors``, as a whole or not at all.

    Args:
        path: Where, without an ending; the folder must exist.
        state: Dictionaries, lists and tuples, nested in any way, of tensors, numpy arrays,
            numbers, strings and None: what a ``state_dict()`` gives.

    Raises:
        TypeError: For anything else in it.
        OSError: Where the file cannot be written.
    """
    tensors: dict[str, torch.Tensor] = {}
    structure = json.dumps(_pack(state, "state", tensors))
    write_bytes(_file(path), save(tensors, metadata={"state": structure}))


def load_state(path: str | Path) -> dict[str, Any]:
    """Reads what `save_state` wrote.

    Args:
        path: As in `save_state`.

    Returns:
        The state, tensors on the CPU.

    Raises:
        ValueError: naming the file, where it is damaged.
        OSError: Where the file cannot be read.
    """
    file = _file(path)
    try:
        with safe_open(file, "pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            return _unpack(json.loads((opened.metadata() or {})["state"]), tensors)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: no state of a learner: {error}") from None


def _file(path: str | Path) -> Path:
    return Path(path).with_name(f"{Path(path).name}.safetensors")


def _pack(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """`value` as JSON in which a tensor is its name, and a dictionary a list of its items."""
    if isinstance(value, torch.Tensor | np.ndarray):
        while name in tensors:  # of {"a": {"b": ...}, "a.b": ...}
            name += "'"
    if isinstance(value, torch.Tensor):
        # A copy of its own: safetensors refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        tensors[name] = torch.from_numpy(value.copy())
        return {"array": name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str | int):
                raise TypeError(f"{name}: got the key {key!r}, wants strings and integers")
        # Optimizers number their parameters, and JSON has no numbers as keys.
        return {"dict": [[key, _pack(v, f"{name}.{key}", tensors)] for key, v in value.items()]}
    if isinstance(value, list | tuple):
        items = [_pack(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name}: got {type(value).__name__}, wants tensors, numbers and their lists")


def _unpack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "array":
        return tensors[inner].numpy()
    if kind == "tuple":
        return tuple(_unpack(item, tensors) for item in inner)
    if kind == "dict":
        return {key: _unpack(item, tensors) for key, item in inner}
    raise KeyError(kind)
