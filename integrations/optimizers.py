"""What the checks of optimizers do: a script optimises a prompt, and `whet verdict` says whether it got better.

The script finds train.jsonl and held_out.jsonl, asks the scripted clerk of `results/clerk.py`, and leaves per-task
results of its first and of its best prompt in the form of its framework. The model that proposes prompts is scripted,
too: once it proposes one that helps, and once, the null control, prompts that are only worded otherwise. The optimizer
picks the luckiest of those on its own tasks; on tasks that it never saw the verdict must not keep it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer

from .results.clerk import CAREFUL, PLAIN, clerk

REWORDED = (
    "Please add the numbers.",
    "Kindly add up both numbers.",
    "Add these two numbers together.",
    "You add numbers for a shop.",
    "Give the total of the two numbers.",
)
TRAIN, HELD_OUT = 40, 120
MOST = 1500
"""Held-out tasks beyond which no more are asked for."""
LIMIT = 400
"""Seconds that one script may take."""


def prompter(proposals: Iterator[str]) -> Any:
    """The model that proposes prompts, to each optimizer in the form that it asks for."""

    def proposed(request: ModelRequest) -> Completion:
        spoken = json.dumps(request.messages)
        tools = [tool.get("name") or tool["function"]["name"] for tool in request.tools or ()]
        if "submit_optimized_params" in tools:
            return _by_tools(request, proposals)
        if "proposed_instruction" in spoken:  # DSPy's COPRO
            return Completion(
                text=f"[[ ## proposed_instruction ## ]]\n{next(proposals)}\n\n"
                "[[ ## proposed_prefix_for_output_field ## ]]\nAnswer:\n\n[[ ## completed ## ]]",
                finish="stop",
            )
        return Completion(text=f"```\n{next(proposals)}\n```", finish="stop")

    return proposed


def _by_tools(request: ModelRequest, proposals: Iterator[str]) -> Completion:
    """Strands: the prompt is written to a file in a shell, and submitted by its path."""
    turn = sum(message["role"] == "tool" for message in request.messages)
    if turn == 0:
        command = f"echo '{next(proposals)}' > system_prompt.txt"
        call = ToolCall(name="shell", arguments=json.dumps({"command": command}), id="call_1")
    elif turn == 1:
        paths = {"file_path_dict": {"system_prompt": "system_prompt.txt"}}
        call = ToolCall(name="submit_optimized_params", arguments=json.dumps(paths), id="call_2")
    else:
        return Completion(text="Submitted.", finish="stop")
    return Completion(tool_calls=[call], finish="tool_calls")


def tasks(folder: Path, held_out: int) -> None:
    """Write both files of tasks: sums of shops, none of them in both."""
    pairs = list(itertools.combinations(range(10, 99), 2))
    random.Random(7).shuffle(pairs)
    rows = [
        {
            "id": f"sum-{number}",
            "question": f"What is {left} + {right}?",
            "expected": str(left + right),
            "group": f"shop-{number // 2}",
        }
        for number, (left, right) in enumerate(pairs[: TRAIN + held_out])
    ]
    for name, part in (("train", rows[:TRAIN]), ("held_out", rows[TRAIN:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


def optimised(
    script: Path,
    python: str,
    folder: Path,
    proposals: Iterator[str],
    environ: Mapping[str, str],
    held_out: int,
) -> None:
    """Run the script there.

    Raises:
        AssertionError: it failed; says what it printed.
    """
    tasks(folder, held_out)
    with (
        ScriptedServer(clerk, models=("clerk",)) as agent,
        ScriptedServer(prompter(proposals), models=("prompter",)) as proposer,
    ):
        kept = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        kept |= {"OPENAI_BASE_URL": agent.base_url, "PROMPTER_BASE_URL": proposer.base_url, "PROMPT": PLAIN}
        kept |= {"OPENAI_API_KEY": "none", "HOME": str(folder), **environ}
        command = [str(Path(python).absolute()), str(script)]
        ended = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, timeout=LIMIT)
        assert ended.returncode == 0, f"{ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-4000:]}"
        assert proposer.requests, f"nothing was proposed\n{ended.stdout[-3000:]}"


def verdict(folder: Path, before: str, after: str, *words: str) -> dict[str, Any]:
    """What `whet verdict` says of the two files."""
    command = [sys.executable, "-m", "whet", "verdict", before, after, *words, "--json"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    answered: dict[str, Any] = json.loads(ended.stdout)
    return answered


def answered(
    script: Path, python: str, files: tuple[str, str], proposals: Sequence[str], **environ: str
) -> dict[str, Any]:
    """The verdict on what the script came to; where it asks for more pairs, on as many more, as a user would."""
    held_out = HELD_OUT
    while True:
        with tempfile.TemporaryDirectory() as folder:
            optimised(script, python, Path(folder), itertools.cycle(proposals), environ, held_out)
            answer = verdict(Path(folder), *files)
        print(
            f"{script.parent.name}: {answer['answer']}, effect {answer['effect']:+.3f} over {answer['n']} pairs"
        )
        assert answer["n"] == held_out, answer
        if answer["answer"] != "more" or held_out > MOST:
            return answer
        held_out += answer["more"] or HELD_OUT


def check(script: Path, python: str, before: str, after: str, **environ: str) -> None:
    """A script that is given a better prompt is kept, and one that is given none is not.

    Raises:
        AssertionError: it is not so.
    """
    better = answered(script, python, (before, after), [CAREFUL], **environ)
    assert better["answer"] == "keep", better
    null = answered(script, python, (before, after), REWORDED, **environ)
    assert null["answer"] == "drop", null
