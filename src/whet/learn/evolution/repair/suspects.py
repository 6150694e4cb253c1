"""Which pieces of an agent's source may be at fault.

Prompts, functions, constants, tables, and files of values beside the code; nothing needs a marker, and nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ....repository.files import files
from ....repository.modules import Module, Repository
from ....repository.prompt_files import file_prompts
from ....types import Trajectory
from ..agents.agent import holds_values
from ..agents.lending import reaches_out
from ..agents.unmarked import changeable, definitions, functions, is_prompt, passed_over
from .called import called_by, functions_behind, read_by

MOST_PIECES = 8
"""Pieces that may be at fault and are tried: one of each kind, and what the tools that were called are and read."""
_CALLED = 0.3
"""Share of the part's runs in which a tool is called, from which the function of its name is near to what fails."""
_FEWEST_WORDS = 4
"""Of a prompt in a file."""
_LARGEST = 32 << 10
"""Bytes of a file of values that may change."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_SETTINGS = re.compile(r"setting|config|param|option", re.IGNORECASE)
"""Names of files of values that are turned and not written."""


class PieceKind(StrEnum):
    """What a piece is, and so what may change it."""

    PROMPT = "prompt"
    """Reflection and rules (`Reflect`)."""
    CODE = "code"
    """Edits and a model's changes of a function, called in the sandbox."""
    TABLE = "table"
    """The same of a constant with several entries: a route, a list of steps."""
    KNOB = "knob"
    """The values around a number or a switch, and a model's changes of it."""
    DATA = "data"
    """Values of a file beside the code, and a model's changes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakPart:
    """What is to be repaired, as an issue names it."""

    issue: str
    component: str
    """prompt, tool, route, memory, model or data; "" if nobody knows."""
    resource: str = ""
    """The piece's name, where one is known."""
    tried: Collection[str] = ()
    """Variants that were tried in vain before, as `variant_id` names them."""
    searched: Collection[str] = ()
    """Names of pieces that were searched in vain before: others come first."""
    runs: frozenset[str]
    """Ids of all recorded runs in this part of the traffic, failed or not."""
    failing: str = ""
    """The tool whose calls end in errors; "" of what fails otherwise."""
    symptom: str = ""
    """What fails, in words, for a model that proposes."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A piece that may be at fault, and what fits it."""

    name: str
    """`module:NAME`."""
    kind: PieceKind


def suspects_of(
    root: Path, entry: str, part: WeakPart, runs: Sequence[Trajectory], words: Mapping[str, float]
) -> list[Suspect]:
    """The pieces that may be at fault, the likeliest first; at most MOST_PIECES.

    The one that the issue names, where the source has it; then those that fit its component, by how far their text
    speaks of what was asked there; then the likeliest of every other kind, for what an issue is put down to is a guess.
    The functions of tools that were called there come before others of their kind, and so do files that these read.
    Where calls of one tool end in errors, nothing but what it does and reads is tried, until that was searched in vain:
    a prompt that has the agent say something else leaves the tool as it is.

    Args:
        words: that tell the part from the rest (`telling_words`).
    """
    repository = Repository(root.resolve())
    modules = [module for path in repository.files(".py") if (module := repository.load(path)) is not None]
    own = dict(_own_functions(modules))
    pieces = {**own, **dict([*_pieces(root), *_file_prompts(repository, modules)])}
    # What asks a service in its own lines can do nothing in the sandbox.
    left_out = {entry} | {
        f"{_dotted(module.path)}:{name}"
        for module in modules
        for node, name in definitions(module.tree)
        if reaches_out(module.tree, node)
    }
    stepped = Counter(step.name for run in runs if run.id in part.runs for step in run.steps)
    tools = {name for name, count in stepped.items() if count > _CALLED * len(part.runs)}
    narrow = bool(part.failing) and not part.searched
    if narrow:
        tools = {part.failing}
    called = functions_behind(modules, tools)
    helpers = called_by(modules, called)
    known = [
        (each, text) for each, text in pieces.items() if each.name not in left_out and _name(each) != "main"
    ]
    # A function of a module's own is one where a tool that was called uses it, and else hardly ever what fails.
    known = [(each, text) for each, text in known if each not in own or _function(each) in helpers]
    named = [suspect for suspect, _ in known if part.resource and _is(suspect, part.resource)]
    fits = FITTING.get(part.component, tuple(PieceKind))
    read = read_by(modules, called, [path.relative_to(root).as_posix() for path in _data_files(root)])

    def near(suspect: Suspect) -> bool:
        return _function(suspect) in called or _function(suspect) in helpers or suspect.name in read

    def speaks(suspect: Suspect, text: str) -> float:
        told = sum(words.get(word, 0.0) for word in {*_WORD.findall(text.casefold().replace("_", " "))})
        # A file that is called what the issue is put down to.
        alike = bool(part.component) and part.component in suspect.name.casefold()
        # What these runs called by its name is nearer than what speaks of it.
        own = 100 * (_function(suspect) in called or suspect.name in read)
        return told + own + 50 * (_function(suspect) in helpers) + alike

    kinds = [*fits, *(kind for kind in PieceKind if kind not in fits)]
    ranked = sorted(
        ((-speaks(suspect, text), suspect) for suspect, text in known),
        key=lambda each: (each[0], kinds.index(each[1].kind)),
    )
    # The likeliest of each kind before a second one of any: words tell little of which kind of piece it is.
    first = {
        (each.kind, ":" in each.name, _function(each) in called, each.name if each.name in read else ""): each
        for _, each in reversed(ranked)
    }
    likely = [suspect for _, suspect in ranked if suspect in first.values()]
    likely.sort(key=lambda suspect: suspect.kind not in fits)
    # What the issue names comes first, and not alone: a tool may be right and its table of values wrong.
    chosen = list(dict.fromkeys([*named, *likely, *(suspect for _, suspect in ranked)]))
    if narrow:
        chosen = [suspect for suspect in chosen if near(suspect)] or chosen
    chosen = sorted(chosen, key=lambda suspect: suspect.name in part.searched)[:MOST_PIECES]
    if part.component == "prompt" and not part.searched:
        chosen.sort(key=lambda suspect: suspect.kind is not PieceKind.PROMPT)
    return chosen


FITTING: dict[str, tuple[PieceKind, ...]] = {
    "prompt": (PieceKind.PROMPT, PieceKind.TABLE),
    "tool": (PieceKind.CODE, PieceKind.DATA, PieceKind.KNOB, PieceKind.TABLE),
    "route": (PieceKind.TABLE, PieceKind.CODE, PieceKind.DATA, PieceKind.KNOB),
    "memory": (PieceKind.KNOB, PieceKind.DATA, PieceKind.TABLE, PieceKind.CODE),
    "data": (PieceKind.DATA, PieceKind.TABLE, PieceKind.CODE, PieceKind.KNOB),
    "model": (PieceKind.DATA, PieceKind.KNOB, PieceKind.TABLE, PieceKind.PROMPT),
}
"""Component → the learners of pieces that may be at fault."""
PARTS = {
    PieceKind.PROMPT: "prompt",
    PieceKind.CODE: "tool",
    PieceKind.TABLE: "route",
    PieceKind.KNOB: "model",
    PieceKind.DATA: "data",
}
"""Kind of a piece → the component that it mostly is."""


def _pieces(root: Path) -> Iterable[tuple[Suspect, str]]:
    """Every piece of the source that could change, with its text."""
    for piece in [*changeable(root), *functions(root)]:
        name = f"{_dotted(Path(piece.path))}:{piece.name}"
        learner = {"prompt": PieceKind.PROMPT, "function": PieceKind.CODE}.get(piece.kind)
        if learner is None:
            learner = PieceKind.KNOB if piece.why.startswith("a number") else PieceKind.TABLE
        yield Suspect(name, learner), f"{piece.name} {_text(root / piece.path, piece.line)}"
    for path in _data_files(root):
        if path.stat().st_size <= _LARGEST:
            learner = PieceKind.KNOB if _SETTINGS.search(path.stem) else PieceKind.DATA
            text = path.read_text(encoding="utf-8", errors="replace")
            yield Suspect(path.relative_to(root).as_posix(), learner), f"{path.stem} {text}"


def _own_functions(modules: Sequence[Module]) -> Iterator[tuple[Suspect, str]]:
    """Functions that are a module's own, by a name that begins with a line, with their text."""
    for module in modules:
        for node, name in definitions(module.tree):
            if node.name.startswith("_") and not node.name.startswith("__") and not passed_over(module.path):
                text = ast.get_source_segment(module.text, node) or ""
                yield Suspect(f"{_dotted(module.path)}:{name}", PieceKind.CODE), f"{name} {text}"


def _file_prompts(repository: Repository, modules: Sequence[Module]) -> Iterator[tuple[Suspect, str]]:
    """Prompts in files: whole texts that the code names or that lie among prompts, and texts under keys."""
    named = {
        Path(node.value).name
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for prompt in file_prompts(repository, lambda text: len(text.split()) >= _FEWEST_WORDS):
        place = Path(prompt.path)
        if passed_over(place):
            continue
        among = any("prompt" in part.casefold() for part in place.parts)
        if is_prompt(prompt.name, prompt.text) if prompt.name else place.name in named or among:
            name = f"{prompt.path}:{prompt.name}" if prompt.name else prompt.path
            yield Suspect(name, PieceKind.PROMPT), f"{place.stem} {prompt.text}"


def _data_files(root: Path) -> list[Path]:
    return [
        path
        for path in files(root)
        if holds_values(path.relative_to(root))
        and not path.name.startswith(".")
        and not passed_over(path.relative_to(root))
    ]


def _text(path: Path, line: int) -> str:
    """The lines of a definition, to the first one that begins another."""
    lines = path.read_text(encoding="utf-8").splitlines()[line - 1 :]
    depth = _indentation(lines[0])
    ends = next(
        (
            n
            for n, text in enumerate(lines[1:], 1)
            if text.strip() and _indentation(text) <= depth and text.lstrip()[0] not in ")]}\"'"
        ),
        len(lines),
    )
    return "\n".join(lines[:ends])


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _dotted(path: Path) -> str:
    """A Python file as a module."""
    return ".".join(path.with_suffix("").parts).removeprefix("src.")


def _name(suspect: Suspect) -> str:
    return suspect.name.partition(":")[2] or suspect.name


def _function(suspect: Suspect) -> str:
    """Its name without the class that it is a method of."""
    return _name(suspect).rpartition(".")[2]


def _is(suspect: Suspect, resource: str) -> bool:
    names = (suspect.name, _name(suspect), _function(suspect), suspect.name.replace(":", "."))
    return resource in (*names, Path(suspect.name).stem)


def telling_words(part: WeakPart, runs: Sequence[Trajectory]) -> dict[str, float]:
    """Word → how much more often it stands in what was asked and done here than elsewhere."""
    # Of a large record most texts stand there many times.
    texts = Counter(
        (f"{run.task.instruction} {' '.join(step.name for step in run.steps)}", run.id in part.runs)
        for run in runs
    )
    here, elsewhere, own = Counter[str](), Counter[str](), 0
    for (text, inside), times in texts.items():
        own += times * inside
        counted = here if inside else elsewhere
        for word in {*_WORD.findall(text.casefold().replace("_", " "))}:
            counted[word] += times
    rest = max(1, len(runs) - own)
    shares = {word: count / max(1, own) - elsewhere[word] / rest for word, count in here.items()}
    return {word: share for word, share in shares.items() if share > 0.1}
