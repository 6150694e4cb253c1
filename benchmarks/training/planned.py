"""The plan's arithmetic beside what a process takes: `whet train --plan` against the same training, on the processor.

    python benchmarks/training/planned.py [--layers N] [--json]

Each row is a process of its own, which loads a Llama of random weights and makes two updates of cross-entropy on
parts of the planned size.  Measured is its anonymous memory at the peak, over what it held when it had done the same
with a model of one narrow layer: the libraries' own memory (some 170 MB, of which transformers' and peft's classes are
loaded with the first model) is no model's.  File pages of the weights, which the system may drop, are not in it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("all weights, float32", {}),
    ("all weights, float32, recomputed", {"recompute": True}),
    ("all weights, bfloat16", {"dtype": "bfloat16"}),
    ("all weights, bfloat16, recomputed", {"dtype": "bfloat16", "recompute": True}),
    ("LoRA factors, float32", {"lora_rank": 16}),
    ("LoRA factors, bfloat16, recomputed", {"lora_rank": 16, "dtype": "bfloat16", "recompute": True}),
)
PART, LENGTH = 2_048, 512
VOCABULARY = 8_000


def sizes() -> dict[str, int]:
    """What Linux says of this process's memory, in bytes."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def anonymous() -> int:
    """Bytes of this process that are no file's."""
    return sizes()["RssAnon"]


class Peak:
    """The most that `anonymous` gives from here on.

    A busy machine lets a thread that looks miss what lasts for milliseconds, and Linux notes the most of all memory
    only.  That less the files' pages at the end, which grow and do not shrink, is never more than the true peak.
    """

    def __init__(self) -> None:
        self.most = 0
        Path("/proc/self/clear_refs").write_text("5")  # the noted peak counts from here
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.most = max(self.most, anonymous())
            time.sleep(0.002)

    def ended(self) -> int:
        """The most so far; watching stops."""
        self._stop.set()
        self._thread.join()
        noted = sizes()
        return max(self.most, noted["VmHWM"] - noted["RssFile"] - noted["RssShmem"])


def written(folder: Path, layers: int, width: int = 512) -> None:
    """A Llama of random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY if width == 512 else 512,
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def trained(folder: Path, options: dict[str, Any], tokens: int) -> None:
    """Load a model and make two updates, each of two parts of these tokens."""
    import random

    from whet.learn.training import huggingface
    from whet.learn.training.batch import Merged, parts
    from whet.learn.training.compute import ComputeOptions
    from whet.learn.training.huggingface import LoRAOptions
    from whet.learn.training.learner import Learner, cloning_loss
    from whet.learn.training.options import OptimOptions, SFTOptions

    rank = options.get("lora_rank", 0)
    compute = ComputeOptions(
        device="cpu", dtype=options.get("dtype", "float32"), recompute=options.get("recompute", False)
    )
    network = huggingface.load(folder, lora=LoRAOptions(rank=rank) if rank else None, compute=compute)
    learner = Learner(network, OptimOptions(), rates=SFTOptions.rates)
    rng, length = random.Random(0), min(LENGTH, tokens)
    rows = [[rng.randrange(network.vocab_size) for _ in range(length)] for _ in range(2 * tokens // length)]
    cut = parts(
        [
            Merged(number, row, list(range(1, length)), [0.0] * (length - 1))
            for number, row in enumerate(rows)
        ],
        tokens,
    )
    for _ in range(2):
        learner.update(cut, cloning_loss(cut), rate=1e-5)


def inside(place: Path, options: dict[str, Any]) -> int:
    """Bytes that training took at its peak, over those before the model was loaded."""
    import torch

    torch.set_num_threads(1)
    trained(place / "first", options, 64)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before, peak = anonymous(), Peak()
    trained(place / "m", options, PART)
    return peak.ended() - before


def main(layers: int) -> list[dict[str, Any]]:
    """A row for each way to train: planned, measured and their ratio."""
    from whet.learn.training.options import LORA_TARGETS
    from whet.learn.training.planning import planned, sizes_of

    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "m"
        written(folder, layers)
        written(Path(place) / "first", 1, width=64)
        model = sizes_of(folder)
        for name, options in ROWS:
            plan = planned(
                model,
                device="cpu",
                dtype=options.get("dtype", "float32"),
                lora_rank=options.get("lora_rank", 0),
                targets=LORA_TARGETS,
                recompute=options.get("recompute", False),
                part_tokens=PART,
            )
            done = subprocess.run(
                [sys.executable, __file__, "--inside", place, json.dumps(options)],
                stdout=subprocess.PIPE,
                check=True,
                text=True,
                # What is freed goes back to the system: a heap's gaps are the allocator's and not the plan's.
                env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"},
            )
            measured = int(done.stdout.split()[-1])
            print(f"{name} done", file=sys.stderr, flush=True)
            rows.append(
                {
                    "trains": name,
                    "planned_mb": round(plan.total / 1e6, 1),
                    "measured_mb": round(measured / 1e6, 1),
                    "ratio": round(plan.total / measured, 3),
                }
            )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", nargs=2)
    given = parser.parse_args()
    if given.inside:
        print(inside(Path(given.inside[0]), json.loads(given.inside[1])))
        sys.exit()
    table = main(given.layers)
    if given.json:
        print(json.dumps(table))
    else:
        for row in table:
            print(
                f"{row['trains']:40} {row['planned_mb']:10.1f} {row['measured_mb']:10.1f} {row['ratio']:7.3f}"
            )
