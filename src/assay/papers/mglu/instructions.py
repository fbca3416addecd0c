"""The instruction sets of the C++ kernels, in the order of their codes; importable anywhere."""

ISAS = ("scalar", "avx2", "avx512", "avx512_bf16")
