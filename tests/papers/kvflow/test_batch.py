"""What running requests hold: memory with room, and beginnings that arrive layer by layer."""

from __future__ import annotations

import pytest
import torch
from tests.papers.kvflow.serving import MODEL, generated, ids

from assay.papers.kvflow.batch import ROOM, Batch, Forward, KVLayer

FORWARD = Forward(MODEL)
PROMPT = ids(40, 3)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def computed(prompt, cached=0, read=lambda layer: (), room=4):
    batch = Batch.prefix(2, cached, read, room)
    return batch, batch.extend(FORWARD, [prompt[cached:]])


def test_a_prefix_in_pieces_gives_the_same_logits():
    whole, expected = computed(PROMPT)
    block = whole.block(0, 0)
    assert block.shape == (2, 2, 2, 40, 16)
    assert block.is_contiguous()
    for cuts in ((25,), (1, 7, 30), (39,)):
        edges = (0, *cuts)
        pieces = [block[:, :, :, a:b] for a, b in zip(edges, cuts, strict=False)]
        batch, logits = computed(PROMPT, cuts[-1], lambda i, pieces=pieces: [p[i] for p in pieces])
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
        torch.testing.assert_close(batch.block(0, 0), block, rtol=0, atol=1e-4)
        assert torch.equal(batch.block(0, 0)[:, :, :, : cuts[-1]], block[:, :, :, : cuts[-1]])


def test_a_layer_is_asked_for_only_when_the_model_reaches_it():
    block = computed(PROMPT)[0].block(0, 0)
    order = []
    forward = MODEL.model.layers[0].register_forward_hook(lambda *_: order.append("computed 0"))

    def read(layer):
        order.append(layer)
        return [block[layer][:, :, :30]]

    computed(PROMPT, 30, read)
    forward.remove()
    assert order == [0, "computed 0", 1]


def test_a_failed_read_is_raised():
    def read(layer):
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        computed(PROMPT, 30, read)


def test_decoding_is_padded_and_grows_beyond_its_room():
    prompts = [ids(n, n) for n in (3, 40, 17)]
    n = 2 * ROOM + 5
    parts = [computed(prompt, room=1) for prompt in prompts]
    outputs = [[int(logits.argmax())] for _, logits in parts]
    batch = Batch.joined([(part, 0) for part, _ in parts])
    for _ in range(n - 1):
        logits = batch.extend(FORWARD, [[output[-1]] for output in outputs])
        for output, token in zip(outputs, logits.argmax(-1).tolist(), strict=True):
            output.append(token)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert tuple(output) == generated(prompt, n, eos_token_id=None)
    assert batch.lengths == [len(prompt) + n - 1 for prompt in prompts]


def test_rows_keep_their_content_when_others_leave():
    parts = [computed(ids(n, n))[0] for n in (3, 40, 17)]
    batch = Batch.joined([(part, 0) for part in parts])
    rest = Batch.joined([(batch, 2), (batch, 0)])
    assert rest.lengths == [17, 3]
    for row, part in ((0, parts[2]), (1, parts[0])):
        assert torch.equal(rest.block(row, 0), part.block(0, 0))
        assert torch.equal(rest.block(row, 2), part.block(0, 2))


def test_a_token_is_written_in_place():
    layer = KVLayer(room=ROOM)
    token = torch.zeros(1, 2, 1, 16)
    layer.update(token, token)
    where = layer.memory.data_ptr()
    for n in range(2, ROOM + 2):
        keys, _ = layer.update(token, token)
        assert keys.shape[2] == layer.get_seq_length() == n
        assert layer.memory.data_ptr() == where
