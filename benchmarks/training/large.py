"""SFT and GRPO steps of a large model beside TRL's, on a GPU or, by small shapes, on a processor.

    python benchmarks/training/large.py [ROW ...] [--shape 0.5b] [--tflops 989] [--model FOLDER] [--json]

Random weights in the shape of a known model, and random sequences: groups of four that share the first quarter.  Each
side is a process of its own that computes all rows, with the same sequences, targets and advantages, in bfloat16 on a
GPU and float32 on a processor: ours as `whet train` would settle it, TRL 1.16's trainer with its own defaults
(gradient checkpointing, AdamW over weights in the same dtype, where ours keeps them in float32 as well), one sequence
at a time where a context is long.  Printed are seconds a step (median of three after one that does not count), tokens a
second, the first step's loss, peak memory and, of ours, the planned one, and the share of the device's FLOP/s (6 a
weight and token, 4 where factors alone are trained; recomputation is not counted) where --tflops says how many it has.

A row is one text, a method and its options: "sft", "grpo --lora-rank 16 --length 32768", "sft --recompute" (ours alone
can be told; TRL always does), "sample" (64 tokens after the first quarter of each sequence, beside transformers'
`generate`), "attention" (of one layer, forward and backward; TRL's side is torch's own over each whole sequence).
Without one the rows are those of ROWS.

The weights are drawn on the device.  To compare losses of two devices keep them: `--model FOLDER` writes them there,
or takes those that are there; WHET_DEVICE=cpu computes on the processor.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, int]] = {
    "small": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 4_000,
    },
    "0.5b": {
        "hidden_size": 896,
        "intermediate_size": 4_864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
    },
    "7b": {
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
    },
}
SIDES = ("ours", "trl")
GROUP, REPEAT, ANSWER = 4, 3, 64
ROWS = (
    "sft",
    "grpo",
    "sft --recompute --part-tokens 8192",
    "sft --lora-rank 16",
    "grpo --lora-rank 16",
    "sft --lora-rank 16 --recompute --part-tokens 8192",
    "sft --lora-rank 16 --four-bit",
    "sample",
    "attention",
)


def cuda() -> bool:
    """Whether a GPU computes."""
    import torch

    return torch.cuda.is_available() and os.environ.get("WHET_DEVICE", "cuda").startswith("cuda")


def sequences(vocabulary: int, length: int, tokens: int) -> list[list[int]]:
    """Groups of GROUP sequences, as many as come to about these tokens."""
    rng = random.Random(0)
    rows = []
    for _ in range(max(1, tokens // (GROUP * length))):
        prompt = [rng.randrange(5, vocabulary) for _ in range(length // 4)]
        for _ in range(GROUP):
            rows.append([*prompt, *(rng.randrange(5, vocabulary) for _ in range(length - len(prompt)))])
    return rows


def written(folder: Path, shape: str, length: int) -> None:
    """A Qwen2 of random weights, in the dtype that is trained here."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = SHAPES[shape]
    config = Qwen2Config(
        **sizes, max_position_embeddings=max(2 * length, 1_024), tie_word_embeddings=shape == "0.5b"
    )
    dtype = torch.bfloat16 if cuda() else torch.float32
    torch.manual_seed(0)
    with torch.device("cuda" if cuda() else "cpu"):
        model = Qwen2ForCausalLM(config).to(dtype)
    model.save_pretrained(folder)


def drawn(shape: str, places: tuple[int, ...]) -> list[Any]:
    """Queries, keys and values of one layer of a shape, with these places before heads and width."""
    import torch

    sizes = SHAPES[shape]
    width = sizes["hidden_size"] // sizes["num_attention_heads"]
    settings: dict[str, Any] = {"requires_grad": True, "device": "cuda" if cuda() else "cpu"}
    settings["dtype"] = torch.bfloat16 if cuda() else torch.float32
    heads = (sizes["num_attention_heads"], *[sizes["num_key_value_heads"]] * 2)
    return [torch.randn((*places, count, width), **settings) for count in heads]


def backward(attended: Any) -> None:
    """The backward pass of what was attended to."""
    attended.float().sum().backward()


def ours(folder: Path, given: argparse.Namespace, place: Path) -> Any:
    """A step of whet's learner, its tokens and the bytes that were planned."""
    from whet.learn.training import network
    from whet.learn.training.batch import Merged, parts
    from whet.learn.training.compute import ComputeOptions
    from whet.learn.training.huggingface import LoRAOptions
    from whet.learn.training.learner import Learner, cloning_loss
    from whet.learn.training.local import LocalModels, adopted
    from whet.learn.training.options import LORA_TARGETS, GRPOOptions, OptimOptions, SFTOptions
    from whet.learn.training.packed_attention import along
    from whet.learn.training.packing import plan
    from whet.learn.training.planning import planned, sizes_of
    from whet.learn.training.policy_gradient import PolicyLoss
    from whet.learn.training.sampler import Sampler
    from whet.types import new_id

    if given.method == "attention":
        rows = sequences(SHAPES[given.shape]["vocab_size"], given.length, given.tokens)
        layout = plan(rows, [range(len(row)) for row in rows])
        q, k, v = drawn(given.shape, (len(layout.ids),))
        layout = layout.to(q.device)
        attend = along(q, k)
        return lambda: backward(attend(layout, q, k, v)), sum(map(len, rows)), None
    lora = LoRAOptions(rank=given.lora_rank) if given.lora_rank else None
    models = LocalModels(compute=ComputeOptions(four_bit=given.four_bit, recompute=given.recompute or None))
    version = adopted("policy", folder, place / new_id(), lora=lora)
    if given.method == "sample":
        sampler = Sampler(models.decoder(version))
        prompts = [
            row[: given.length // 4]
            for row in sequences(sampler.network.vocab_size, given.length, given.tokens)
        ]

        async def together() -> None:
            sessions = [sampler.session(number) for number in range(len(prompts))]
            answers = (
                session.generate(prompt, stop_id=None, max_new_tokens=ANSWER)
                for session, prompt in zip(sessions, prompts, strict=True)
            )
            await asyncio.gather(*answers)

        return lambda: asyncio.run(together()), ANSWER * len(prompts), None
    options = SFTOptions() if given.method == "sft" else GRPOOptions()
    options = models.sized(replace(options, part_tokens=given.part_tokens), version)
    learner = Learner(models.decoder(version), OptimOptions(), rates=options.rates)
    rows = sequences(learner.decoder.vocab_size, given.length, given.tokens)
    start = given.length // 4
    merged = [
        Merged(
            number,
            row,
            list(range(start, len(row))),
            [-8.0] * (len(row) - start),
            advantages=[float(number % GROUP) - 1.5] * (len(row) - start),
        )
        for number, row in enumerate(rows)
    ]
    cut = parts(merged, options.part_tokens)

    def step() -> float:
        loss = cloning_loss(cut) if given.method == "sft" else PolicyLoss(parts=cut, aggregation="dapo")
        return learner.update(cut, loss, rate=1e-6)[0]

    computing = network.computing(learner.decoder)
    plan = planned(
        sizes_of(folder),
        device=computing["device"],
        dtype=computing["dtype"],
        lora_rank=given.lora_rank,
        targets=LORA_TARGETS,
        four_bit=given.four_bit,
        recompute=computing["recompute"],
        part_tokens=max(part.computed for part in cut),
    )
    return step, sum(map(len, rows)), plan.total


def theirs(folder: Path, given: argparse.Namespace, place: Path) -> Any:
    """A step of TRL's trainer and its tokens."""
    import torch
    import trl
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    warnings.filterwarnings("ignore")
    if given.method == "attention":
        rows = sequences(SHAPES[given.shape]["vocab_size"], given.length, given.tokens)
        q, k, v = (one.transpose(1, 2) for one in drawn(given.shape, (len(rows), given.length)))
        attend = torch.nn.functional.scaled_dot_product_attention
        return lambda: backward(attend(q, k, v, is_causal=True, enable_gqa=True)), sum(map(len, rows)), None
    device = "cuda" if cuda() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    loading: dict[str, Any] = {"dtype": dtype}
    if given.four_bit:
        from transformers import BitsAndBytesConfig

        loading["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
        loading["device_map"] = {"": device}
    model: Any = AutoModelForCausalLM.from_pretrained(folder, **loading)
    model = model if given.four_bit else model.to(device)
    if given.method == "sample":
        rows = sequences(SHAPES[given.shape]["vocab_size"], given.length, given.tokens)
        ids = torch.tensor([row[: given.length // 4] for row in rows], device=device)

        def written_after() -> None:
            settings = {"do_sample": True, "top_k": 0, "min_new_tokens": ANSWER, "max_new_tokens": ANSWER}
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **settings)

        return written_after, ANSWER * len(rows), None
    if given.lora_rank:
        from whet.learn.training.options import LORA_TARGETS

        settings = LoraConfig(
            r=given.lora_rank, lora_alpha=2 * given.lora_rank, target_modules=list(LORA_TARGETS)
        )
        model = get_peft_model(model, settings)
        model.enable_input_require_grads()
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(100)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w3")
    shared: dict[str, Any] = {
        "output_dir": str(place / "trl"),
        "use_cpu": device == "cpu",
        "report_to": [],
        "bf16": False,
        "disable_tqdm": True,
    }
    more: dict[str, Any] = {}
    if given.method == "grpo":
        more["reward_funcs"] = lambda completions, **_: [0.0] * len(completions)
        config = trl.GRPOConfig(
            **shared, num_generations=GROUP, per_device_train_batch_size=GROUP, loss_type="dapo", beta=0.0
        )
        table = {"prompt": ["w4"] * GROUP}
    else:
        config, table = trl.SFTConfig(**shared), {"prompt": ["w4"], "completion": ["w5 w6"]}
    trainer = getattr(trl, f"{given.method.upper()}Trainer")(
        model=model, args=config, train_dataset=Dataset.from_dict(table), processing_class=tokenizer, **more
    )
    model = trainer.model
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, weight_decay=0.0)
    rows = sequences(SHAPES[given.shape]["vocab_size"], given.length, given.tokens)
    start, size = given.length // 4, max(1, 8_192 // given.length)
    batches = []
    for first in range(0, len(rows), size):
        ids = torch.tensor(rows[first : first + size], device=device)
        if given.method == "sft":
            labels = ids.clone()
            labels[:, :start] = -100
            batches.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
        else:
            numbers = torch.arange(first, first + len(ids), device=device)
            answers = torch.ones_like(ids[:, start:])
            batches.append(
                {
                    "prompt_ids": ids[:, :start],
                    "prompt_mask": torch.ones_like(ids[:, :start]),
                    "completion_ids": ids[:, start:],
                    "completion_mask": answers,
                    "old_per_token_logps": answers * -8.0,
                    "advantages": (numbers % GROUP).float() - 1.5,
                    "num_items_in_batch": torch.tensor(
                        float(len(rows) * (given.length - start)), device=device
                    ),
                }
            )
    trainer.current_gradient_accumulation_steps = len(batches)
    trainer.args.steps_per_generation = len(batches)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for batch in batches:
            loss = trainer.compute_loss(model, batch)
            # Of SFT the mean of one micro-batch, of which all are the same size; GRPO divides by all tokens itself.
            loss = loss / len(batches) if given.method == "sft" else loss
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        return total

    return step, sum(map(len, rows)), None


def measured(side: str, folder: Path, given: argparse.Namespace, place: Path) -> dict[str, float]:
    """Seconds a step, tokens of it, and the peak of memory."""
    import torch

    if cuda():
        torch.cuda.reset_peak_memory_stats()
    step, tokens, plan = (ours if side == "ours" else theirs)(folder, given, place)
    # On a processor the process's own seconds: others that compute there are no part of a step.
    now = time.perf_counter if cuda() else time.process_time
    took, losses = [], []
    for _ in range(REPEAT + 1):
        if cuda():
            torch.cuda.synchronize()
        before = now()
        losses.append(step())
        if cuda():
            torch.cuda.synchronize()
        took.append(now() - before)
    if cuda():
        peak = float(torch.cuda.max_memory_allocated())
    else:
        status = Path("/proc/self/status").read_text().splitlines()
        peak = float(next(line.split()[1] for line in status if line.startswith("VmHWM:"))) * 1024
    found = {"seconds": statistics.median(took[1:]), "tokens": tokens, "peak_gb": peak / 1e9}
    found |= {} if losses[0] is None else {"loss": losses[0]}
    return found if plan is None else {**found, "planned_gb": plan / 1e9}


def inside(side: str, folder: Path, rows: list[argparse.Namespace]) -> None:
    """Print what each row comes to on one side, a line each."""
    import torch

    if not cuda():
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        for row in rows:
            print(json.dumps(measured(side, folder, row, Path(place))), flush=True)
            gc.collect()
            if cuda():
                torch.cuda.empty_cache()
            else:
                # The peak is a process's, so that each row begins it anew.
                Path("/proc/self/clear_refs").write_text("5")


def row_of(text: str) -> argparse.Namespace:
    """A row's method and options."""
    parser = argparse.ArgumentParser(prog="a row")
    parser.add_argument("method", choices=("sft", "grpo", "sample", "attention"))
    parser.add_argument("--lora-rank", type=int, default=0)
    parser.add_argument("--four-bit", action="store_true", help="frozen weights in NF4; with --lora-rank")
    parser.add_argument("--recompute", action="store_true", help="ours: whether or not there is room")
    parser.add_argument("--part-tokens", type=int, help="ours: computed at once")
    parser.add_argument("--length", type=int, default=8_192, help="tokens of a sequence")
    parser.add_argument("--tokens", type=int, default=32_768, help="of a step; no less than a group")
    return parser.parse_args(shlex.split(text))


def arguments() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", default=ROWS, help='as "grpo --lora-rank 16"')
    parser.add_argument("--shape", choices=tuple(SHAPES), default="0.5b")
    parser.add_argument(
        "--model", type=Path, help="folder of the weights, which are made there if there are none"
    )
    parser.add_argument("--tflops", type=float, help="of the device in bfloat16, dense")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Measure both sides and print."""
    given = arguments().parse_args()
    texts: list[str] = list(given.rows)
    rows = [row_of(text) for text in texts]
    for row in rows:
        row.shape = given.shape
    if given.inside:
        inside(given.inside[0], Path(given.inside[1]), rows)
        return 0
    sides: list[list[dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = given.model or Path(place) / "model"
        if not (folder / "config.json").is_file():
            written(folder, given.shape, max(row.length for row in rows))
        for name in SIDES:
            words = [sys.executable, __file__, *sys.argv[1:], "--inside", name, str(folder)]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
            sides.append([json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])
        from whet.learn.training.planning import sizes_of

        weights = sizes_of(folder).count
    if not given.json:
        print(f"{weights:,} weights")
    for text, row, mine, their in zip(texts, rows, *sides, strict=True):
        for side in (mine, their):
            side["tokens_per_second"] = side["tokens"] / side["seconds"]
            if given.tflops and row.method in ("sft", "grpo"):
                each = (4 if row.lora_rank else 6) * weights
                side["utilisation"] = each * side["tokens_per_second"] / (given.tflops * 1e12)
        ratios = {name: mine[name] / their[name] for name in ("seconds", "peak_gb")}
        if given.json:
            print(json.dumps({"row": text, "ours": mine, "trl": their, "ratios": ratios}))
            continue
        print(f"{text}: time {ratios['seconds']:.2f}, memory {ratios['peak_gb']:.2f} of TRL's")
        for name, side in zip(SIDES, (mine, their), strict=True):
            print(f"  {name}", {key: round(value, 3) for key, value in side.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
