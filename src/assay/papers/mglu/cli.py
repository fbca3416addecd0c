"""`assay mglu`: decode times on this machine, and the search for learning rates."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from assay.papers.mglu.study import (
    FIRST_ROUND_STEPS,
    STEPS,
    TUNING_RATES,
    TUNING_SEED,
    arm_name,
    every_arm,
    finalists,
    kind_of,
    recipe,
)
from assay.study import Scale

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Masked gated linear units.",
)
console = Console(highlight=False)


@app.command()
def bench(
    h: Annotated[int, typer.Option("--h", help="Hidden size.", min=1)] = 4096,
    d: Annotated[int, typer.Option("--d", help="Intermediate size.", min=1)] = 14336,
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16 (GPU).")] = "bf16",
    cache: Annotated[str, typer.Option(help="cold or warm.")] = "cold",
    isa: Annotated[
        str, typer.Option(help="best, avx512_bf16, avx512, avx2 or scalar (CPU).")
    ] = "best",
    repeats: Annotated[int, typer.Option(help="Timings of each kernel.", min=4)] = 30,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for all cores.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Times decoding through an MGLU against a GLU, kernel against kernel, at batch 1."""
    import torch

    from assay.papers.mglu.timing import decode

    if threads:
        torch.set_num_threads(threads)
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: got 'cuda', and torch finds no GPU; use --device cpu")
    found = decode(h, d, dtype, cache=cache, isa=isa, repeats=repeats, device=device)
    table = Table(title=f"{h} x {d}, {dtype}, {cache} caches, {device}", title_justify="left")
    for column in ("kernel", "ms a token", "against the best GLU", "GB/s of weights"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for name in (k.removesuffix("_gb_s") for k in found if k.endswith("_gb_s")):
        if name == "copy":
            continue
        rate = found[f"{name}_per_s"]
        table.add_row(
            arm_name(name),
            f"{1e3 / rate:.3f}",
            f"{rate / found['best_glu_per_s']:.2f}x",
            f"{found[f'{name}_gb_s']:.1f}",
        )
    console.print(table)
    if not math.isfinite(found["best_glu_per_s"]):
        console.print(
            f"The machine was busy (spread {found['spread']:.2f}, {found['foreign']:.0%} of the "
            "CPU time went to other processes), so no times are given. Try again when it is idle."
        )
        raise typer.Exit(1)
    if "copy_gb_s" in found:
        console.print(f"Plain reading of memory: {found['copy_gb_s']:.1f} GB/s.")


@app.command()
def tune(
    kind: Annotated[str, typer.Option(help="Only this kind, such as swiglu; empty: all.")] = "",
) -> None:
    """Searches the learning rates of the laptop language models (two hours on one core)."""
    from assay.papers.mglu.language_model import train

    arms = {kind_of(arm): arm for arm in every_arm()}
    if kind and kind not in arms:
        raise ValueError(f"kind: got {kind!r}, wants one of {', '.join(arms)}")
    seed = int(np.random.SeedSequence(TUNING_SEED).generate_state(1)[0])

    def loss(name: str, rate: float, steps: int) -> float:
        sizes = recipe(Scale.LAPTOP, {"steps": steps, "lr": rate})
        return train(name, sizes, seed, lambda *_: None)["held_out_nll"]

    rounds = (FIRST_ROUND_STEPS, STEPS[Scale.LAPTOP])
    title = f"held-out nats a byte after {rounds[0]} and {rounds[1]} steps"
    table = Table("kind", *(f"{rate:g}" for rate in TUNING_RATES), title=title)
    for name in [kind] if kind else arms:
        first = [loss(name, rate, rounds[0]) for rate in TUNING_RATES]
        second = {rate: loss(name, rate, rounds[1]) for rate in finalists(first)}
        cells = (
            f"{early:.4f} {second[rate]:.4f}" if rate in second else f"{early:.4f}"
            for rate, early in zip(TUNING_RATES, first, strict=True)
        )
        table.add_row(name, *cells)
    console.print(table)
