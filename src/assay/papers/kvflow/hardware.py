"""What serving costs: seconds of a prefill, of a decode step and of a copy, on given hardware."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from assay.toolkits.checks import number, whole

GB = 1e9


@dataclass(frozen=True)
class ModelShape:
    """A transformer decoder, as far as its costs depend on it.

    Attributes:
        n_params: Number of weights, all of which a token's computation uses.
        n_layers: Number of layers.
        n_heads: Attention heads of queries.
        n_kv_heads: Heads of keys and values.
        head_dim: Size of a head.
        dtype_bytes: Bytes of a number (2: fp16, bf16; 4: fp32).
    """

    n_params: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    dtype_bytes: int = 2

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            whole(name, getattr(self, name))

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's keys and values in all layers."""
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim * self.dtype_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return self.n_params * self.dtype_bytes

    @classmethod
    def qwen2_5_32b(cls) -> ModelShape:
        """Qwen2.5-32B: 256 KiB a token in 16 bits."""
        return cls(32_763_876_352, 64, 40, 8, 128)

    @classmethod
    def llama3_1_8b(cls) -> ModelShape:
        """Llama-3.1-8B: 128 KiB a token in 16 bits."""
        return cls(8_030_261_248, 32, 32, 8, 128)

    @classmethod
    def smollm2_135m(cls, dtype_bytes: int = 4) -> ModelShape:
        """SmolLM2-135M: 45 KiB a token in 32 bits.

        Args:
            dtype_bytes: Bytes of a number.
        """
        return cls(134_515_008, 30, 9, 3, 64, dtype_bytes)


class Costs(Protocol):
    """What the simulator asks of hardware; `Hardware` and `MeasuredHardware` answer."""

    def prefill_s(self, model: ModelShape, n_new: int, n_cached: int) -> float:
        """Seconds to compute `n_new` tokens that follow `n_cached` whose keys are there."""

    def decode_s(self, model: ModelShape, lengths: Sequence[int]) -> float:
        """Seconds of one decode step for sequences of these lengths."""

    def copy_s(self, n_bytes: float) -> float:
        """Seconds of a copy between host and device."""


@dataclass(frozen=True)
class Hardware:
    """A GPU and its link to the host, by the roofline: what is slower, compute or memory.

    A prefill of n tokens after m cached ones takes 2 n_params FLOPs a token for the weights and
    4 n_layers n_heads head_dim n (m + (n + 1) / 2) for attention; a decode step reads the weights
    and the keys and values of all sequences once.

    Attributes:
        name: For people.
        flops: Peak dense FLOP/s in 16 bits.
        memory_gbps: Peak bandwidth of device memory in GB/s.
        memory_bytes: Size of device memory.
        link_gbps: Peak bandwidth of the link to the host in GB/s, in each direction.
        compute_efficiency: Share of `flops` that a prefill reaches.
        memory_efficiency: Share of `memory_gbps` that a decode step reaches.
        link_efficiency: Share of `link_gbps` that a copy reaches. Copies of whole blocks get near
            the peak; copies of scattered pages do not: what the paper reports of its baseline
            fits 0.08 to 0.16 of PCIe 5.
        step_s: Seconds that each prefill and each decode step takes besides.
    """

    name: str
    flops: float
    memory_gbps: float
    memory_bytes: float
    link_gbps: float
    compute_efficiency: float = 0.55
    memory_efficiency: float = 0.8
    link_efficiency: float = 0.8
    step_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flops", "memory_gbps", "memory_bytes", "link_gbps"):
            number(name, getattr(self, name), above=0)
        for name in ("compute_efficiency", "memory_efficiency", "link_efficiency"):
            number(name, getattr(self, name), above=0, most=1)
        number("step_s", self.step_s, least=0)

    @classmethod
    def h100(cls, link_gbps: float = 64.0, **efficiencies: float) -> Hardware:
        """H100 SXM 80 GB, PCIe 5 x16 (NVIDIA H100 data sheet: 989.4 TFLOPS, 3.35 TB/s).

        Args:
            link_gbps: Peak of the link in GB/s and direction.
            efficiencies: `compute_efficiency`, `memory_efficiency`, `link_efficiency`, `step_s`.
        """
        return cls("H100 SXM", 989.4e12, 3350.0, 80e9, link_gbps, **efficiencies)

    @classmethod
    def h200(cls, link_gbps: float = 64.0, **efficiencies: float) -> Hardware:
        """H200 SXM 141 GB, PCIe 5 x16 (NVIDIA H200 data sheet: 989.4 TFLOPS, 4.8 TB/s).

        Args:
            link_gbps: Peak of the link in GB/s and direction.
            efficiencies: As for `h100`.
        """
        return cls("H200 SXM", 989.4e12, 4800.0, 141e9, link_gbps, **efficiencies)

    @classmethod
    def a100(cls, link_gbps: float = 32.0, **efficiencies: float) -> Hardware:
        """A100 SXM 80 GB, PCIe 4 x16 (NVIDIA A100 data sheet: 312 TFLOPS, 2.039 TB/s).

        Args:
            link_gbps: Peak of the link in GB/s and direction.
            efficiencies: As for `h100`.
        """
        return cls("A100 SXM", 312e12, 2039.0, 80e9, link_gbps, **efficiencies)

    @classmethod
    def a10g(cls, link_gbps: float = 32.0, **efficiencies: float) -> Hardware:
        """A10G 24 GB, PCIe 4 x16 (AWS G5; NVIDIA's figures as in Baseten, "A10 vs A10G": 70
        TFLOPS, 600 GB/s).

        Args:
            link_gbps: Peak of the link in GB/s and direction.
            efficiencies: As for `h100`.
        """
        return cls("A10G", 70e12, 600.0, 24e9, link_gbps, **efficiencies)

    @staticmethod
    def measured(
        prefill_tokens_per_s: float,
        decode_step_s: float,
        link_gbps: float | None = None,
        prefill_s: float = 0.0,
        decode_request_s: float = 0.0,
    ) -> MeasuredHardware:
        """Hardware described by timings of a real serving loop (with one model).

        Args:
            prefill_tokens_per_s: Rate at which tokens of a prompt are computed, > 0.
            decode_step_s: Seconds of a decode step for one sequence, >= 0.
            link_gbps: Rate of copies in GB/s and direction, as they come out; None: no time.
            prefill_s: Seconds that a prefill takes however short it is.
            decode_request_s: Seconds that each further sequence adds to a decode step.

        Raises:
            TypeError, ValueError: One is no number or out of range.
        """
        return MeasuredHardware(
            prefill_tokens_per_s=number("prefill_tokens_per_s", prefill_tokens_per_s, above=0),
            decode_step_s=number("decode_step_s", decode_step_s, least=0),
            link_gbps=math.inf if link_gbps is None else number("link_gbps", link_gbps, above=0),
            prefill_base_s=number("prefill_s", prefill_s, least=0),
            decode_request_s=number("decode_request_s", decode_request_s, least=0),
        )

    def prefill_s(self, model: ModelShape, n_new: int, n_cached: int = 0) -> float:
        """Seconds of a prefill.

        Args:
            model: Its shape.
            n_new: Tokens computed.
            n_cached: Tokens before them whose keys and values are on the device.
        """
        per_pair = 4 * model.n_layers * model.n_heads * model.head_dim
        flops = 2 * model.n_params * n_new + per_pair * n_new * (n_cached + (n_new + 1) / 2)
        compute = flops / (self.flops * self.compute_efficiency)
        return max(compute, self._read_s(model.weight_bytes)) + self.step_s

    def decode_s(self, model: ModelShape, lengths: Sequence[int]) -> float:
        """Seconds of one decode step.

        Args:
            model: Its shape.
            lengths: Tokens of each sequence, the new one included.
        """
        per_pair = 4 * model.n_layers * model.n_heads * model.head_dim
        flops = 2 * model.n_params * len(lengths) + per_pair * sum(lengths)
        read = model.weight_bytes + model.kv_bytes_per_token * sum(lengths)
        compute = flops / (self.flops * self.compute_efficiency)
        return max(compute, self._read_s(read)) + self.step_s

    def copy_s(self, n_bytes: float) -> float:
        """Seconds of a copy between host and device.

        Args:
            n_bytes: Its size.
        """
        return n_bytes / (self.link_gbps * GB * self.link_efficiency)

    def kv_bytes(self, model: ModelShape, share: float = 0.9) -> int:
        """Bytes that are left for keys and values beside the weights.

        Args:
            model: Its shape.
            share: Of the memory that the server may use, above 0, at most 1.

        Raises:
            ValueError: The weights alone need more.
        """
        number("share", share, above=0, most=1)
        left = int(self.memory_bytes * share) - model.weight_bytes
        if left <= 0:
            raise ValueError(
                f"model: got weights of {model.weight_bytes / GB:.1f} GB, wants less than "
                f"{share:g} of {self.name}'s {self.memory_bytes / GB:g} GB"
            )
        return left

    def _read_s(self, n_bytes: float) -> float:
        return n_bytes / (self.memory_gbps * GB * self.memory_efficiency)


@dataclass(frozen=True)
class MeasuredHardware:
    """Costs as they were timed; see `Hardware.measured`."""

    prefill_tokens_per_s: float
    decode_step_s: float
    link_gbps: float
    prefill_base_s: float = 0.0
    decode_request_s: float = 0.0
    name: str = field(default="measured")

    def prefill_s(self, model: ModelShape, n_new: int, n_cached: int = 0) -> float:
        """Seconds of a prefill, as `Hardware.prefill_s`; cached tokens add nothing."""
        return self.prefill_base_s + n_new / self.prefill_tokens_per_s

    def decode_s(self, model: ModelShape, lengths: Sequence[int]) -> float:
        """Seconds of one decode step, as `Hardware.decode_s`; lengths add nothing."""
        return self.decode_step_s + (len(lengths) - 1) * self.decode_request_s

    def copy_s(self, n_bytes: float) -> float:
        """Seconds of a copy between host and device."""
        return n_bytes / (self.link_gbps * GB)
