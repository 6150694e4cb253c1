"""Which function of an agent's file answers, and which text is its prompt, by what is written and what was recorded."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ....errors import InputError
from ....python_text import module_of
from ....repository.modules import Repository
from ....repository.prompt_files import file_prompts
from ....repository.scan import PromptLiteral, Scan
from ....repository.syntax import definitions
from ....types import Json, Trajectory
from ..editing.slots import rendered_in

MOST_BESIDE = 2
"""Prompts of other calls that change with the chosen one: each takes a share of the search."""
DECLARED_WORDS = 3
"""Words from which on the default of a declared resource is taken for a prompt."""
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
        defined = {name for name, node in definitions(module_of(path.read_bytes()).body)}
    except SyntaxError as error:
        raise InputError(f"{path} is not Python: {error}") from error
    recorded = Counter(name for run in runs if (name := _traced(run)) in defined)
    if recorded:
        return f"{module}:{recorded.most_common(1)[0][0]}"
    inside = path.resolve().relative_to(root).as_posix()
    own = [point for point in found.entry_points if point.path == inside and point.parameters]
    if not own:
        raise InputError(
            f"{path} has no function that takes an input and runs the agent, as far as its text shows: name it with "
            f"--entry module:function; a function that runs none is improved by a table: name it, as {module}:FUNCTION"
        )
    return f"{module}:{own[0].name}"


@dataclass(frozen=True, slots=True)
class ChosenPrompt:
    """The text that may change, and what there is to say of the choice."""

    name: str
    """`module:NAME` of a constant, the path of a file, or `path:key` of a value in one."""
    others: Sequence[str]
    """Those that stay."""
    sentences: Sequence[str] = ()
    beside: Sequence[str] = ()
    """Those that other calls of the agent's model have, which may change as well."""


def prompt_of(
    named: str | None,
    module: str,
    found: Scan,
    used: Counter[str],
    source: Callable[[str], str],
    entry: str = "",
) -> ChosenPrompt:
    """The text to change: the one that the recorded calls had most, in a constant or in a file beside the code.

    Args:
        entry: name of the function that is called, which tells a prompt where nothing was recorded.
        used: recorded system prompts, as they were before anything was released for them.
        source: gives the same of a text that the repository holds.

    Raises:
        InputError: there is none, or nobody can tell which of several is read.
    """
    repository = Repository(found.root)
    constants = [prompt for prompt in found.prompts if prompt.name.isidentifier() and prompt.name != "system"]
    texts = {called(prompt): prompt for prompt in constants if prompt.path.endswith(".py")}
    if named is not None:
        name = named if ":" in named or (found.root / named).is_file() else f"{module}:{named}"
        return ChosenPrompt(name, [each for each in texts if each != name])

    def recorded(text: str) -> bool:
        return any(stands_in(sent, source(text)) for sent in used)

    # A constant whose name says nothing is a prompt if it was sent as one.
    sent_texts = [*(text for text in found.texts if recorded(text.text)), *file_prompts(repository, recorded)]
    texts |= {called(prompt): prompt for prompt in sent_texts}
    # A declared text is one by its owners' word, where it is more than the name of a model or a place.
    texts |= {
        called(text): text
        for text in found.texts
        if text.declared and len(text.text.split()) >= DECLARED_WORDS
    }
    if not texts:
        unread = [f"{path} ({why})" for path, why in repository.problems.items()]
        raise InputError(
            'no prompt was found, neither a constant that is called one, as in SYSTEM_PROMPT = "...", nor a constant, '
            "a declared resource or a file whose text the recorded system prompts hold: make it one, or name it with "
            "--prompt" + (f". Not read: {'; '.join(unread)}" if unread else "")
        )
    texts = {name: replace(prompt, text=source(prompt.text)) for name, prompt in texts.items()}
    held = {
        name: sum(count for sent, count in used.items() if stands_in(sent, prompt.text))
        for name, prompt in texts.items()
    }
    written = [repository.text(repository.relative(path)) for path in repository.files(".py")]
    mentions = {name: _mentioned(prompt, written) for name, prompt in texts.items()}
    reads = set() if used or not entry else _read_by(entry, module, repository)

    def standing(name: str) -> tuple[int, bool, bool, int, int, bool]:
        own = name.startswith(f"{module}:")
        read = own and texts[name].name in reads
        return held[name], read, own and not held[name], len(texts[name].text), mentions[name], own

    name = max(texts, key=standing)
    chosen = texts[name]
    beside = _beside(name, texts, list(used), key=standing)
    twins = [
        each
        for each in texts
        if each != name and held[each] and texts[each].text.strip() == chosen.text.strip()
    ]
    if not chosen.path.endswith(".py"):
        rivals = [
            each for each in twins if mentions[each] == mentions[name] or texts[each].path.endswith(".py")
        ]
        if rivals:
            raise InputError(
                f"the recorded system prompt stands in {name} and in {', '.join(rivals)} alike, and a change of what "
                f"the agent does not read would do nothing: name what it reads, as in --prompt {name}"
            )
    sentences = []
    if not chosen.path.endswith(".py"):
        sentences.append(
            f"{name} is a file whose text {held[name]} of {used.total()} recorded system prompts hold"
        )
    elif used and not held[name]:
        sentences.append(
            f"{name} stands in none of {used.total()} recorded system prompts, so it may not be used"
        )
    elif not used and len(texts) > 1:
        sentences.append(
            f"nothing recorded tells which prompt is sent; {name} is taken (--prompt names another)"
        )
    if twins:
        sentences.append(f"the same text stands in {', '.join(twins)}, which stays: the source reads {name}")
    stay = [each for each in texts if each not in (name, *twins, *beside)]
    return ChosenPrompt(name, stay, sentences, [each for each in beside if each not in twins])


def _beside(
    name: str, texts: Mapping[str, PromptLiteral], used: Sequence[str], *, key: Callable[[str], Any]
) -> list[str]:
    """One text for each kind of call that does not have the chosen one: what stands there, no other text can say.

    Of several that make up one prompt one is enough.
    """
    calls = {each: {sent for sent in used if stands_in(sent, text.text)} for each, text in texts.items()}
    covered, beside = set(calls[name]), list[str]()
    for each in sorted(texts, key=key, reverse=True):
        if calls[each] and covered.isdisjoint(calls[each]) and len(beside) < MOST_BESIDE:
            beside.append(each)
            covered |= calls[each]
    return beside


def called(prompt: PromptLiteral) -> str:
    """The name by which a text is given to `--prompt`."""
    if prompt.path.endswith(".py"):
        return ".".join(Path(prompt.path).with_suffix("").parts).removeprefix("src.") + f":{prompt.name}"
    return f"{prompt.path}:{prompt.name}" if prompt.name else prompt.path


def _read_by(entry: str, module: str, repository: Repository) -> set[str]:
    """The names that a function of a module reads, itself or through functions beside it."""
    path = module.replace(".", "/") + ".py"
    files = repository.files(".py")
    file = next((each for each in files if repository.relative(each).removeprefix("src/") == path), None)
    if file is None:
        return set()
    defined = dict(definitions(module_of(repository.text(repository.relative(file)).encode()).body))
    names, waiting = set[str](), [entry]
    while waiting:
        node = defined.get(waiting.pop())
        new = (
            {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - names
            if node is not None
            else set()
        )
        names |= new
        waiting += sorted(new)
    return names


def _mentioned(prompt: PromptLiteral, written: Sequence[str]) -> int:
    """How surely some source reads this text: 3 a file that it names, 2 a constant, 1 a file whose stem it names."""
    path = PurePosixPath(prompt.path)
    if path.suffix == ".py":
        return 2
    if any(path.name in text for text in written):
        return 3
    stem = re.compile(rf"[\"'/]{re.escape(path.stem)}[\"'.]")
    return int(any(stem.search(text) for text in written))


def stands_in(sent: str, text: str) -> bool:
    """A system prompt is this text, or has it within what a framework writes around it, its places filled in."""
    return sent.strip() == text.strip() or holds(sent, text) or rendered_in(sent, text, least=PASSAGE)


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
