"""The options of `whet evolve`, which are made from the dataclasses here, and what follows from them."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

from ....errors import InputError
from ....models import Price
from ....models.base import Model
from ....python_text import module_of
from ....sandbox import Limits, Local, Sandbox
from ....types import Budget, Version
from ..agents.candidates import ProgramCodec
from ..editing.blocks import BLOCKS
from ..editing.edits import EDITS
from ..editing.program import Program
from .engine import SearchOptions, SearchOutcome
from .openevolve import Config
from .pair import WARM
from .proposing import Proposing
from .sweep import SWEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryInput:
    """The targets of a repository, and the rows that they are judged on."""

    targets: tuple[str, ...] = ()
    """A target to improve: its name (whet extract-targets lists them), or module:function. May be repeated."""
    repository: Path = Path()
    """Repository of the targets. Nothing in it is imported or changed."""
    entry: str | None = None
    """Function through which all targets are judged, by name or as module:function. If omitted, the target that
    uses all the others, where there is one."""
    data: Path | None = None
    """Rows to judge on: a folder with one folder for each function, or a JSON Lines file for the entry. If omitted,
    whet_data, which whet generate-training-data writes."""
    input: tuple[str, ...] = ()
    """Column of the input in a --data file. May be repeated: the input is then all of them by name. If omitted, input,
    question or another usual name; otherwise it is guessed and shown."""
    expected: str | None = None
    """Column of the right answer in such a file; guessed and shown where no usual name is there."""
    group: str | None = None
    """Column that says which rows belong together."""
    evaluators: Path | None = None
    """A folder of admitted evaluators, or one evaluator, which is proven first. If omitted, evaluators/TARGET where
    it exists; otherwise answers are compared for equality."""
    network: bool = False
    """The entry is an agent that calls a model or other services: it runs unsandboxed, with your user's permissions,
    in a copy of the repository, and only the functions that evolve stay in the sandbox. Each candidate is first tried
    on a quarter of the rows."""
    agent_calls: int | None = None
    """Most calls of such an agent. What its own models cost is not counted in --calls, --tokens or --dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of the search; None leaves one to the config, which has OpenEvolve's defaults."""

    config: Config = field(default_factory=lambda: Config(iterations=100))
    store: Path | None = None
    """The record, created if it does not exist; OUTPUT/runs.db if omitted. Well-rated runs in it may be shown in
    prompts as examples, never those of the gate's groups. Without any, a fifth of the training rows is set aside for
    that."""
    output: Path | None = None
    """Folder for the results. If omitted, whet_output beside the program, or in the current folder."""
    iterations: int | None = None
    """Proposals to make. If omitted, the config's max_iterations, or 100; no limit if --seconds or --cpu-seconds is
    given."""
    seconds: float | None = None
    """Stop proposing after this much wall-clock time."""
    cpu_seconds: float | None = None
    """Stop proposing after this much CPU time of the candidates and the search together."""
    calls: int | None = None
    """Most model calls."""
    tokens: int | None = None
    """Most model tokens."""
    dollars: float | None = None
    """Most money for models. Needs --price for a model whose public price whet does not know."""
    price: tuple[float, float] | None = None
    """Dollars per million prompt tokens, and per million output tokens. If omitted, the model's public price."""
    target_score: float | None = None
    """Stop at this score."""
    offline: bool = False
    """Ask no model, whatever the config says."""
    models_only: bool = False
    """Leave all proposals to models: no built-in edits."""
    ask: Literal["changes", "apo", "gepa"] = "changes"
    """Request to the models: changes asks for an edit of the program; apo for a criticism of the failures, then for a
    rewrite; gepa is GEPA's own (needs the extra gepa)."""
    command: str = ""
    """A command that also proposes, a coding agent for instance. It starts in a folder with program/, evidence.json
    and budget.json, and edits program/ or prints a patch. It runs unsandboxed, with your user's permissions."""
    command_seconds: float = 600.0
    """Time limit of one run of the command, in seconds."""
    population: Literal["auto", "islands", "best", "front"] = "auto"
    """Candidates to develop further: those on islands, the best few, or the front over the rows. auto chooses the front
    for targets without Python, otherwise islands."""
    workers: int | None = None
    """Candidates judged in parallel. The result does not depend on it."""
    in_flight: int | None = None
    """Most proposals under way at a time, and so model calls: 16 if a model is asked, otherwise 8; 4 with --network.
    A proposal sees the results of all others. Beyond 8 it is reached gradually: at most a third of the proposals so
    far. The result depends on it."""
    timeout: float | None = None
    """Time limit in seconds: of one stage of an evaluation (300 unless the config says otherwise), or of one call of
    a target (10, or 120 with --network)."""
    seed: int | None = None
    """Random seed; 42 unless the config says otherwise."""
    regime: Literal["exchangeable", "new-group"] = "new-group"
    """How the rows came, which decides what they prove: exchangeable (more such rows), or new-group (rows of a group
    that was not seen). Both are printed."""
    alpha: float = 0.05
    """Highest chance of promoting a change that has no effect."""
    folds: int = 0
    """Parts of the rows of one target, each tried with what was searched on the others, so that every row is behind the
    proof; 0 holds a fifth of the rows back instead."""
    unsafe_local: bool = False
    """Run candidates without the sandbox. Only for code that you trust: such a score never promotes."""

    @property
    def budget(self) -> Budget:
        """Of the search and its models."""
        return Budget(calls=self.calls, tokens=self.tokens, dollars=self.dollars, seconds=self.seconds)

    def search(
        self, *, code: bool, text: bool, length: int, asks: bool = False, dear: bool = False
    ) -> SearchOptions:
        """Options of the engine.

        Args:
            code, text: true if Python, or other text, may change.
            length: characters of everything that may change.
            asks: true if a model proposes, which is waited for.
            dear: true if a candidate itself asks a model: fewer are drawn before the results of others are known.

        Raises:
            InputError: fewer than one proposal, or none in flight.
        """
        config = self.config
        timed = self.seconds is not None or self.cpu_seconds is not None
        iterations = self.iterations if self.iterations is not None or timed else config.iterations
        if iterations is not None and iterations < 1:
            raise InputError(f"--iterations {iterations}: it must be at least 1")
        workers = config.workers if self.workers is None else self.workers
        first = 4 if dear else 8
        most = (16 if asks and not dear else first) if self.in_flight is None else self.in_flight
        if most < 1:
            raise InputError(f"--in-flight {most}: it must be at least 1")
        return SearchOptions(
            iterations=iterations,
            seed=config.seed if self.seed is None else self.seed,
            workers=workers,
            # More workers than this change what is found; fewer do not.
            in_flight=max(min(first, most), workers),
            most_in_flight=most,
            edits=() if self.models_only else (*EDITS, SWEEP) * code + (*BLOCKS,) * text,
            target=self.target_score,
            patience=config.patience,
            cpu_seconds=self.cpu_seconds,
            max_length=max(config.max_length, 2 * length),
        )

    def asks(self, models: Sequence[Model] | None = None) -> bool:
        """True if a model proposes, of these or of the config's."""
        return not self.offline and bool(self.config.models if models is None else models)

    def proposing(self, models: Sequence[Model] | None = None) -> Proposing:
        """The models and the command that propose beside the edits.

        Raises:
            InputError: nobody can, or an unknown way of asking.
        """
        price = None if self.price is None else Price(prompt=self.price[0], output=self.price[1])
        proposing = Proposing(
            self.config, models, self.offline, self.ask, price, self.command, self.command_seconds
        )
        if self.models_only and not self.asks(models) and not self.command:
            raise InputError(
                "edits are off and no model is configured: give --model, or llm.models in --config, or omit "
                "--models-only"
            )
        return proposing

    def sandbox(self, timeout: float, memory: int) -> Sandbox | Local:
        """The sandbox of candidates; `memory` in MiB unless the config says otherwise."""
        limits = Limits(
            memory=(self.config.memory_mb or memory) << 20,
            cpu_seconds=max(1.0, timeout),
            wall_seconds=timeout,
            processes=64,
        )
        return Local(limits=limits) if self.unsafe_local else Sandbox(limits=limits)


def lineage_of(search: SearchOutcome, form: ProgramCodec) -> list[Version]:
    """The Versions from the start to what was found."""
    versions = list(form.baseline.values())
    for record in reversed(search.lineage()):
        parts = record.parts or {}
        versions += form.bundle(Program(parts, next(iter(parts)))).values()
    return versions


def modules_of(texts: Iterable[str], beside: Collection[str] = ()) -> tuple[str, ...]:
    """Installed modules that Python texts import: loaded once, not per evaluation.

    Args:
        beside: modules that are staged with them.
    """
    imports: list[str] = []
    for text in texts:
        for node in ast.walk(module_of(text)):
            if isinstance(node, ast.Import):
                imports += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                # `from scipy import optimize`: a module, or a name in one.
                imports += [f"{node.module}.{alias.name}" for alias in node.names]
    # Of openevolve a stand-in is loaded inside (`worker.stand_in_for_openevolve`).
    excluded = {*beside, "openevolve", "__future__", "whet"}
    modules = [_installed(name) for name in imports if name.partition(".")[0] not in excluded]
    return tuple(dict.fromkeys([*WARM, *filter(None, modules)]))


def _installed(name: str) -> str:
    """The part of a dotted name that is a module, found without importing it; "" if no part is."""
    root, *parts = name.split(".")
    try:
        # The root alone: `find_spec` of a dotted name imports the packages above it.
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        spec = None
    # To the last dot: loading that before the fork, and the evaluator once per candidate, took 0.85 ms of 7.2
    # off the processor time of an evaluation in benchmarks/evolution.py.
    module = ""
    while spec is not None:
        module = spec.name
        inside = spec.submodule_search_locations
        spec = PathFinder.find_spec(f"{module}.{parts.pop(0)}", inside) if inside and parts else None
    return module


def folder_in_git(folder: Path) -> str:
    """Path of a folder in its git repository, with a slash at the end; "" at its root and outside of one."""
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            inside = folder.relative_to(above).as_posix()
            return "" if inside == "." else f"{inside}/"
    return ""
