"""Which function of an agent's file answers, and which constant is its prompt, by its text and by what was recorded."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...repository.scan import Scan
from ...repository.syntax import definitions
from ...types import Json, Trajectory

PASSAGE = 20
"""Characters of a prompt below which it may stand in a system prompt by chance."""


def placed(path: Path) -> tuple[Path, str]:
    """The folder that is copied and imported from, and the module's name in it."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    here, whole = Path.cwd(), path.resolve()
    root = here if whole.is_relative_to(here) else whole.parent
    return root, ".".join(whole.relative_to(root).with_suffix("").parts).removeprefix("src.")


def _traced(run: Trajectory) -> str:
    """The name of the function that a run is one of, as the record says or its outermost span is called."""
    return str(run.meta.get("function") or (run.steps[0].name if run.steps else ""))


def entry_of(found: Scan, path: Path, root: Path, module: str, runs: Sequence[Trajectory]) -> str:
    """The function that is called with a person's input: the one that was recorded most, else the first that runs."""
    try:
        defined = {name for name, node in definitions(ast.parse(path.read_bytes()).body)}
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} is not Python: {error}") from error
    recorded = Counter(name for run in runs if (name := _traced(run)) in defined)
    if recorded:
        return f"{module}:{recorded.most_common(1)[0][0]}"
    inside = path.resolve().relative_to(root).as_posix()
    own = [point for point in found.entry_points if point.path == inside and point.parameters]
    if not own:
        raise InputError(
            f"{path} has no function that takes an input and runs the agent, as far as its text shows: name it with "
            "--entry module:function"
        )
    return f"{module}:{own[0].name}"


def prompt_of(
    named: str | None, module: str, prompts: Sequence[Any], used: Counter[str]
) -> tuple[str, list[str]]:
    """The constant to change, as `module:NAME`, and those that stay: the one that the recorded calls had most."""
    constants = [prompt for prompt in prompts if prompt.name.isidentifier() and prompt.name != "system"]
    called = {
        ".".join(Path(prompt.path).with_suffix("").parts).removeprefix("src.") + f":{prompt.name}": prompt
        for prompt in constants
    }
    if named is not None:
        chosen = named if ":" in named else f"{module}:{named}"
    elif not called:
        raise InputError(
            'no prompt was found that is a constant of a module, as in SYSTEM_PROMPT = "...": make it one, or name it '
            "with --prompt"
        )
    else:

        def standing(name: str) -> tuple[int, bool, int]:
            text = called[name].text
            held = sum(count for prompt, count in used.items() if text == prompt or holds(prompt, text))
            return held, name.startswith(f"{module}:"), len(text)

        chosen = max(called, key=standing)
    return chosen, [name for name in called if name != chosen]


def holds(prompt: str, text: str) -> bool:
    """A system prompt has this text within what a framework writes around it."""
    return len(text) >= PASSAGE and text in prompt


def system_prompts(run: Trajectory) -> Iterator[str]:
    """The system prompts of a run's recorded model calls."""
    for step in run.steps:
        if step.kind != "llm":
            continue
        waiting: list[Json] = [step.observation]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                content = value.get("content", value.get("text"))
                if value.get("role") in ("system", "developer") and isinstance(content, str):
                    yield content
                waiting += value.values()
            elif isinstance(value, list | tuple):
                waiting += value
