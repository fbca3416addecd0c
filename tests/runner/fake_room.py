"""A study whose trials do what their parameter `do` says."""

import ctypes
import faulthandler
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from assay.study import Claim, Context, Need, Protocol, Sample, Scale, Study, Threshold, Trial


def _claim(id: str) -> Claim:
    return Claim(
        id=id,
        statement="The value is positive.",
        figure="none printed",
        setting="none",
        source="ours",
        test=Threshold(Sample("value"), op=">", value=0.0),
        protocol={Scale.SMOKE: Protocol.PROXY},
    )


class FakeStudy(Study):
    """Claims of different cost: C1 40 s, C2 10 s, C3 5 s more than C2, C4 needs absent data."""

    version = 3
    claims = tuple(_claim(f"C{i}") for i in range(1, 5))

    def trials(self, scale: Scale, seeds: Sequence[int] | None = None) -> Iterable[Trial]:
        for seed in seeds or (0, 1):
            yield Trial({"do": "draw", "lr": 0.1, "n": 1}, seed, ("C1",), cost=20)
            yield Trial({"do": "draw", "lr": 0.2, "n": 1}, seed, ("C2", "C3"), cost=5)
        yield Trial({"do": "draw", "lr": 0.3, "n": 1, "big": False}, 0, ("C3",), cost=5)
        yield Trial({"do": "draw", "lr": 0.4}, 0, ("C4",), needs=(Need.data("absent.csv", "ask"),))

    def run(self, trial: Trial, context: Context) -> Mapping[str, float]:
        return getattr(self, "do_" + str(trial.params["do"]))(trial, context)

    def do_draw(self, trial: Trial, context: Context) -> Mapping[str, float]:
        return {
            "value": context.rng.random(),
            "numpy": np.random.random(),
            "python": random.random(),
            "seed": context.seed,
            "sets": float("".join(str(ord(c)) for c in {"a", "b", "c"})),
        }

    def do_draw_torch(self, trial: Trial, context: Context) -> Mapping[str, float]:
        import torch

        return {"torch": torch.rand(1).item(), "threads": torch.get_num_threads()}

    def do_draw_with_torch_loaded(self, trial: Trial, context: Context) -> Mapping[str, float]:
        torch = sys.modules["torch"]
        return {"torch": torch.rand(1).item(), "threads": torch.get_num_threads()}

    def do_nothing(self, trial: Trial, context: Context) -> Mapping[str, float]:
        return {}

    def do_sleep(self, trial: Trial, context: Context) -> Mapping[str, float]:
        time.sleep(float(trial.params["for"]))
        return {"ended": time.monotonic(), "began": time.monotonic() - float(trial.params["for"])}

    def do_draw_slowly(self, trial: Trial, context: Context) -> Mapping[str, float]:
        time.sleep(0.2)
        return self.do_draw(trial, context)

    def do_odd_numbers(self, trial: Trial, context: Context) -> Mapping[str, float]:
        context.record("curve", 0, math.nan)
        context.record("curve", 1, np.float32(0.1))
        return {"nan": math.nan, "inf": -math.inf, "tenth": 0.1, "true": True, "np": np.int64(3)}

    def do_save(self, trial: Trial, context: Context) -> Mapping[str, float]:
        source = Path(context.cache()) / "source"
        source.write_bytes(b"copied")
        context.save("text.txt", "text")
        context.save("bytes.bin", b"\x00\x01")
        context.save("copy.bin", source)
        return {}

    def do_save_outside(self, trial: Trial, context: Context) -> Mapping[str, float]:
        context.save("../x", "text")
        return {}

    def do_abort(self, trial: Trial, context: Context) -> Mapping[str, float]:
        print("about to abort")
        os.abort()

    def do_segfault(self, trial: Trial, context: Context) -> Mapping[str, float]:
        ctypes.string_at(0)
        return {}

    def do_exit(self, trial: Trial, context: Context) -> Mapping[str, float]:
        os._exit(3)

    def do_sys_exit(self, trial: Trial, context: Context) -> Mapping[str, float]:
        sys.exit(4)

    def do_raise(self, trial: Trial, context: Context) -> Mapping[str, float]:
        print("before the error")
        raise RuntimeError("no luck")

    def do_hang(self, trial: Trial, context: Context) -> Mapping[str, float]:
        while True:
            time.sleep(0.1)

    def do_hang_without_alarm(self, trial: Trial, context: Context) -> Mapping[str, float]:
        faulthandler.cancel_dump_traceback_later()
        return self.do_hang(trial, context)

    def do_die_later(self, trial: Trial, context: Context) -> Mapping[str, float]:
        threading.Timer(0.2, os._exit, [5]).start()
        return {"pid": os.getpid()}

    def do_fail_once(self, trial: Trial, context: Context) -> Mapping[str, float]:
        mark = context.cache() / "failed"
        if not mark.exists():
            mark.touch()
            raise RuntimeError("the first time")
        return {"value": 1.0}

    def do_hang_below_python(self, trial: Trial, context: Context) -> Mapping[str, float]:
        ctypes.PyDLL(None).sleep(1000)  # holds the global interpreter lock
        return {}

    def do_hog(self, trial: Trial, context: Context) -> Mapping[str, float]:
        held = []
        while True:
            held.append(np.ones(2**20))  # 8 MiB
            time.sleep(0.005)

    def do_keep_memory(self, trial: Trial, context: Context) -> Mapping[str, float]:
        self.kept = np.ones(25 * 2**20)  # 200 MiB
        return {"pid": os.getpid()}

    def do_process(self, trial: Trial, context: Context) -> Mapping[str, float]:
        return {"pid": os.getpid(), "omp": float(os.environ["OMP_NUM_THREADS"])}

    def do_gpu(self, trial: Trial, context: Context) -> Mapping[str, float]:
        time.sleep(0.2)
        visible = os.environ["CUDA_VISIBLE_DEVICES"]
        return {"gpu": float(visible or -1), "cuda": context.device == "cuda"}

    def do_spawn_child(self, trial: Trial, context: Context) -> Mapping[str, float]:
        child = subprocess.Popen(["sleep", "1000"])
        Path(str(trial.params["pids"])).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(1000)
        return {}

    def do_return_list(self, trial: Trial, context: Context) -> Mapping[str, float]:
        return [1.0]  # type: ignore[return-value]

    def do_return_text(self, trial: Trial, context: Context) -> Mapping[str, float]:
        return {"value": "high"}  # type: ignore[dict-item]

    def do_missing_data(self, trial: Trial, context: Context) -> Mapping[str, float]:
        context.data("absent.csv")
        return {}


study = FakeStudy()
