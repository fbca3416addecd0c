"""`assay mglu`: decode times on this machine, and the search for learning rates."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from assay.papers.mglu.study import TUNING_RATES, arm_name, study
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
    """Trains each kind of the laptop language model at several rates (an hour on one core)."""
    from assay.papers.mglu.language_model import train
    from assay.papers.mglu.study import kind_of, recipe

    trials = [t for t in study.tuning() if kind in ("", kind_of(t.params))]
    if not trials:
        kinds = ", ".join(dict.fromkeys(kind_of(t.params) for t in study.tuning()))
        raise ValueError(f"kind: got {kind!r}, wants one of {kinds}")
    table = Table("kind", *(f"{rate:g}" for rate in TUNING_RATES), title="held-out nats a byte")
    row: list[str] = []
    for trial in trials:
        seed = int(np.random.SeedSequence(trial.seed).generate_state(1)[0])
        sizes = recipe(Scale.LAPTOP, trial.params)
        found = train(kind_of(trial.params), sizes, seed, lambda *_: None)
        row.append(f"{found['held_out_nll']:.4f}")
        if len(row) == len(TUNING_RATES):
            table.add_row(kind_of(trial.params), *row)
            row = []
    console.print(table)
