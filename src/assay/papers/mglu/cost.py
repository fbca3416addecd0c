"""How many bytes a decoded token reads, by counting."""

from __future__ import annotations

from dataclasses import dataclass

from assay.papers.mglu.packing import MAX_MASKS
from assay.toolkits.checks import number, one_of, whole


@dataclass(frozen=True)
class DecodeCost:
    """Bytes that the gate and value projections read for one token at batch 1.

    Attributes:
        bytes_glu: two matrices of a GLU.
        bytes_mglu_packed: one matrix and n masks of one bit a weight.
        bytes_mglu_byte: one matrix and one byte a weight, the layout of the paper's own kernel;
            None for more than 8 masks.
    """

    bytes_glu: int
    bytes_mglu_packed: int
    bytes_mglu_byte: int | None

    def floor_s(self, bandwidth: float, layout: str = "planes") -> float:
        """Least seconds a token: bytes over bandwidth.

        Args:
            bandwidth: bytes a second, > 0.
            layout: "planes", "bytes", or "glu" for the two matrices.

        Raises:
            ValueError: a bandwidth <= 0, or bytes for more than 8 masks.
        """
        number("bandwidth", bandwidth, above=0)
        one_of("layout", layout, ("planes", "bytes", "glu"))
        read = {
            "planes": self.bytes_mglu_packed,
            "bytes": self.bytes_mglu_byte,
            "glu": self.bytes_glu,
        }[layout]
        if read is None:
            raise ValueError("layout: a byte holds at most 8 masks; use planes")
        return read / bandwidth


def decode_cost(h: int, d: int, n_masks: int, bits: int = 16) -> DecodeCost:
    """Weight bytes a token of a GLU and of an MGLU with the same h and d.

    Args:
        h: hidden size.
        d: intermediate size.
        n_masks: number of masks, 1 to 16.
        bits: of a weight: 4, 8, 16 or 32.

    Raises:
        TypeError, ValueError: an argument outside its range.

    Example:
        >>> cost = decode_cost(4096, 14336, n_masks=4)
        >>> cost.bytes_mglu_packed / cost.bytes_glu
        0.625
    """
    whole("h", h)
    whole("d", d)
    if whole("n_masks", n_masks) > MAX_MASKS["planes"]:
        raise ValueError(f"n_masks: got {n_masks}, wants 1 to {MAX_MASKS['planes']}")
    if bits not in (4, 8, 16, 32):
        raise ValueError(f"bits: got {bits}, wants 4, 8, 16 or 32")
    matrix = d * ((h * bits + 7) // 8)
    return DecodeCost(
        bytes_glu=2 * matrix,
        bytes_mglu_packed=matrix + n_masks * d * ((h + 7) // 8),
        bytes_mglu_byte=matrix + d * h if n_masks <= MAX_MASKS["bytes"] else None,
    )
