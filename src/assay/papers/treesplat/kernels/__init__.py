"""numba kernels of the CPU rasteriser: each works on a range of its items and holds no GIL."""
