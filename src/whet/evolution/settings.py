"""What a run of `whet evolve` is told, whatever it improves, and what follows from it."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

from ..errors import InputError
from ..models import Price
from ..models.base import Model
from ..sandbox import Limits, Local, Sandbox
from ..types import Budget, Version
from .blocks import BLOCKS
from .candidates import Form
from .edits import EDITS
from .engine import Found, SearchOptions
from .openevolve import Config
from .pair import WARM
from .program import Program
from .proposing import Proposing


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of a run; None leaves it to the config, which has OpenEvolve's defaults."""

    config: Config = field(default_factory=lambda: Config(iterations=100))
    store: Path | None = None
    """The record; `runs.db` in the output folder if None."""
    output: Path | None = None
    budget: Budget = field(default_factory=Budget)
    """Of the search and its models: calls, tokens, dollars, and wall-clock seconds."""
    price: Price | None = None
    """Of the models, where dollars are limited or estimated."""
    iterations: int | None = None
    cpu_seconds: float | None = None
    """CPU time of candidates and search together after which nothing more is proposed."""
    offline: bool = False
    """Ask no model, whatever is configured."""
    edits: bool = True
    """Edit without a model, too; otherwise everything is left to the models."""
    workers: int | None = None
    timeout: float | None = None
    seed: int | None = None
    target_score: float | None = None
    population: str = "auto"
    """`islands`, `best` (mu + lambda), `front` (per instance), or `auto`: the front for what holds no
    Python, else islands."""
    ask: str = "changes"
    command: str = ""
    command_seconds: float = 600.0
    unsafe_local: bool = False
    """Run without the sandbox; for code that one trusts."""

    def search(self, *, code: bool, text: bool, length: int, in_flight: int = 8) -> SearchOptions:
        """How it is searched.

        Args:
            code, text: which there is of both.
            length: characters of all that may change.

        Raises:
            InputError: fewer than one proposal.
        """
        config = self.config
        timed = self.budget.seconds is not None or self.cpu_seconds is not None
        iterations = self.iterations if self.iterations is not None or timed else config.iterations
        if iterations is not None and iterations < 1:
            raise InputError(f"--iterations {iterations}: it must be at least 1")
        workers = config.workers if self.workers is None else self.workers
        return SearchOptions(
            iterations=iterations,
            seed=config.seed if self.seed is None else self.seed,
            workers=workers,
            in_flight=max(in_flight, workers),
            edits=((*EDITS,) * code + (*BLOCKS,) * text) if self.edits else (),
            target=self.target_score,
            patience=config.patience,
            cpu_seconds=self.cpu_seconds,
            max_length=max(config.max_length, 2 * length),
        )

    def proposing(self, models: Sequence[Model] | None = None) -> Proposing:
        """Who proposes beside the edits.

        Raises:
            InputError: nobody can, or a way of asking that there is not.
        """
        made = Proposing(
            self.config, models, self.offline, self.ask, self.price, self.command, self.command_seconds
        )
        asked = not self.offline and (self.config.models if models is None else models)
        if not (self.edits or asked or self.command):
            raise InputError(
                "edits are off and no model is configured; give --model, or llm.models in --config, or leave "
                "--models-only out"
            )
        return made

    def sandbox(self, timeout: float, memory: int) -> Sandbox | Local:
        """Where candidates run; `memory` in MiB unless the config says otherwise."""
        limits = Limits(
            memory=(self.config.memory_mb or memory) << 20,
            cpu_seconds=max(1.0, timeout),
            wall_seconds=timeout,
            processes=64,
        )
        return Local(limits=limits) if self.unsafe_local else Sandbox(limits=limits)


def lineage_of(found: Found, form: Form) -> list[Version]:
    """The Versions from the start to what was found."""
    versions = list(form.baseline.values())
    for record in reversed(found.lineage()):
        parts = record.parts or {}
        versions += form.bundle(Program(parts, next(iter(parts)))).values()
    return versions


def modules_of(texts: Iterable[str], beside: Collection[str] = ()) -> tuple[str, ...]:
    """What Python texts import and is installed: loaded once, not per evaluation.

    Args:
        beside: modules that are staged with them.
    """
    named: list[str] = []
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                named += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                # `from scipy import optimize`: a module, or a name in one.
                named += [f"{node.module}.{alias.name}" for alias in node.names]
    left_out = {*beside, "openevolve", "__future__", "whet"}
    found = [_installed(name) for name in named if name.partition(".")[0] not in left_out]
    return tuple(dict.fromkeys([*WARM, *filter(None, found)]))


def _installed(name: str) -> str:
    """As much of a dotted name as is a module; "" for nothing.  Nothing of it is imported to see."""
    root, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        spec = None
    found = ""
    while spec is not None:
        found = spec.name
        inside = spec.submodule_search_locations
        spec = PathFinder.find_spec(f"{found}.{parts.pop(0)}", inside) if inside and parts else None
    return found


def folder_in_git(folder: Path) -> str:
    """A folder as its git repository names it, with a slash at the end; "" at its root and outside of one."""
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            inside = folder.relative_to(above).as_posix()
            return "" if inside == "." else f"{inside}/"
    return ""
