"""Prompts, and what a model answers without a cache and without others beside it."""

from __future__ import annotations

import random
import time

import torch

from assay.papers.kvflow.models import load_model

MODEL, TOKENIZER = load_model("tiny")


def ids(n: int, seed: int) -> tuple[int, ...]:
    """Random tokens, none of them special."""
    draw = random.Random(seed)
    return tuple(draw.randrange(4, 260) for _ in range(n))


def generated(prompt, n: int, model=MODEL, **options) -> tuple[int, ...]:
    """What `generate` adds to a prompt."""
    answer = model.generate(
        torch.tensor([prompt]), max_new_tokens=n, **({"do_sample": False} | options)
    )
    return tuple(answer[0, len(prompt) :].tolist())


def until(happens, seconds=20.0):
    """Waits for something."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.002)
