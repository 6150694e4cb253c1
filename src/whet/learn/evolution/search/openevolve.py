"""OpenEvolve's files: its config is read, its checkpoints are read and written.

Names and defaults are those of openevolve 0.4.0.  What has no meaning here (prompt templates, log
files, limits that it declares and does not implement) is accepted and listed in `Config.ignored`, so
its examples run unchanged and nobody is misled about options without effect.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ....errors import InputError
from ....models import Retry
from ....record.yaml_files import read_yaml
from ....types import Json
from ..editing.program import Program, text_of
from .pair import JudgeOptions
from .population import IslandOptions, Judged
from .records import ProposalRecord

_VARIABLE = re.compile(r"^\$\{([^}]+)\}$")
_HERE = {
    "": ("max_iterations", "random_seed", "diff_based_evolution", "max_code_length"),
    "llm": ("models", "primary_model", "primary_model_weight", "secondary_model", "secondary_model_weight"),
    "prompt": ("system_message", "num_top_programs", "include_artifacts", "max_artifact_bytes"),
    "evaluator": (
        "timeout",
        "memory_limit_mb",
        "cascade_evaluation",
        "cascade_thresholds",
        "parallel_evaluations",
        "enable_artifacts",
    ),
    "database": (
        "num_islands",
        "archive_size",
        "elite_selection_ratio",
        "exploration_ratio",
        "exploitation_ratio",
        "feature_dimensions",
        "feature_bins",
        "migration_interval",
        "migration_rate",
        "random_seed",
    ),
}
_MODEL = (
    *("name", "api_base", "api_key", "weight", "temperature", "top_p", "max_tokens", "system_message"),
    *("timeout", "retries"),
)
_TOP = ("early_stopping_patience",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model of the ensemble."""

    name: str
    api_base: str = "https://api.openai.com/v1"
    api_key: str | None = None
    weight: float = 1.0
    settings: Mapping[str, Json] = field(default_factory=dict)
    """temperature, top_p and max_tokens, where they are given."""
    retry: Retry = field(default_factory=Retry)
    """Timeout and attempts of a call: their `timeout` and `retries`."""

    def __repr__(self) -> str:
        return f"ModelConfig({self.name!r}, {self.api_base!r})"  # never the key


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A config.yaml in our terms."""

    iterations: int = 10000
    seed: int = 42
    diff: bool = True
    max_length: int = 10000
    patience: int | None = None
    workers: int = 1
    memory_mb: int | None = None
    system: str | None = None
    feedback: bool = True
    feedback_characters: int = 20 * 1024
    judge: JudgeOptions = field(default_factory=JudgeOptions)
    islands: IslandOptions = field(default_factory=IslandOptions)
    models: tuple[ModelConfig, ...] = ()
    ignored: tuple[str, ...] = ()
    """Options in the file that have no effect here, as `section.name`."""


def read_config(path: Path) -> Config:
    """A config.yaml, or the same as .json.

    Raises:
        InputError: no such file, not YAML, a value of the wrong kind, or a variable that is not set.
        MissingExtra: YAML, and PyYAML is not installed.
    """
    text = text_of(path, "config")
    if path.suffix == ".json":
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{path} is not JSON: {error}") from error
    else:
        data = read_yaml(path, text)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise InputError(f"{path} holds a {type(data).__name__}, not sections with options")
    return config_of(data, str(path))


class _Section:
    """One section of a config, read with the kind that each option has."""

    def __init__(self, data: Mapping[str, Any], name: str, where: str) -> None:
        options = data if not name else data.get(name)
        options = {} if options is None else options
        if not isinstance(options, Mapping):
            raise InputError(f"{where}: {name} is a {type(options).__name__}, not a section with options")
        self.options, self.name, self.where = options, name, where

    def get(self, name: str, kind: type | tuple[type, ...], default: Any) -> Any:
        """The option, `default` if it is not there or null."""
        value = self.options.get(name)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # bool is a subclass of int
        if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
            kind_names = " or ".join(allowed.__name__ for allowed in kinds)
            label = f"{self.name}.{name}" if self.name else name
            raise InputError(f"{self.where}: {label} is {value!r}; it must be {kind_names}")
        return value

    def number(self, name: str, default: float, *, low: float = 0.0, high: float | None = None) -> float:
        """A number option inside its bounds."""
        value = self.get(name, (int, float), default)
        if value < low or (high is not None and value > high):
            bound = f"from {low:g} to {high:g}" if high is not None else f"at least {low:g}"
            label = f"{self.name}.{name}" if self.name else name
            raise InputError(f"{self.where}: {label} is {value!r}; it must be {bound}")
        return float(value)

    def texts(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of texts."""
        value = self.get(name, list, list(default))
        if not all(isinstance(text, str) for text in value):
            raise InputError(f"{self.where}: {self.name}.{name} is {value!r}; it must be a list of names")
        return tuple(value)

    def ignored(self, honoured: Sequence[str]) -> list[str]:
        """Options that are given and not in `honoured`."""
        prefix = f"{self.name}." if self.name else ""
        return [prefix + str(name) for name in self.options if name not in honoured]


def config_of(data: Mapping[str, Any], where: str = "the config") -> Config:
    """The Config that a mapping in the form of OpenEvolve's config.yaml stands for.

    Raises:
        InputError: a value of the wrong kind or out of its bounds, named with its section.
    """
    top, llm, prompt = (_Section(data, name, where) for name in ("", "llm", "prompt"))
    evaluator, database = _Section(data, "evaluator", where), _Section(data, "database", where)
    features = database.texts("feature_dimensions", ("complexity", "diversity"))
    thresholds = evaluator.get("cascade_thresholds", list, [0.5, 0.75, 0.9])
    if not all(
        isinstance(threshold, (int, float)) and not isinstance(threshold, bool) for threshold in thresholds
    ):
        raise InputError(f"{where}: evaluator.cascade_thresholds is {thresholds!r}; it must be numbers")
    ignored = [
        *top.ignored((*_HERE, *_HERE[""], *_TOP)),
        *llm.ignored((*_HERE["llm"], *_MODEL)),
        *_ignored_of_models(llm),
        *(name for section in (prompt, evaluator, database) for name in section.ignored(_HERE[section.name])),
    ]
    return Config(
        iterations=int(top.number("max_iterations", 10000, low=1)),
        seed=int(top.get("random_seed", int, database.get("random_seed", int, 42))),
        diff=top.get("diff_based_evolution", bool, True),
        max_length=int(top.number("max_code_length", 10000, low=1)),
        patience=_count(top, "early_stopping_patience"),
        workers=int(evaluator.number("parallel_evaluations", 1, low=1)),
        memory_mb=_count(evaluator, "memory_limit_mb"),
        system=prompt.get("system_message", str, llm.get("system_message", str, None)),
        feedback=prompt.get("include_artifacts", bool, True)
        and evaluator.get("enable_artifacts", bool, True),
        feedback_characters=int(prompt.number("max_artifact_bytes", 20 * 1024)),
        judge=JudgeOptions(
            timeout=evaluator.number("timeout", 300.0, low=0.001),
            cascade_evaluation=evaluator.get("cascade_evaluation", bool, True),
            cascade_thresholds=tuple(map(float, thresholds)),
            feature_dimensions=features,
        ),
        islands=_islands(database, prompt, features),
        models=_models(llm, where),
        ignored=tuple(ignored),
    )


def _count(section: _Section, name: str) -> int | None:
    """A number of 1 or more, None where it is not given."""
    count = section.get(name, int, None)
    return None if count is None else int(section.number(name, count, low=1))


def _islands(database: _Section, prompt: _Section, features: tuple[str, ...]) -> IslandOptions:
    bins = database.get("feature_bins", (int, dict), 10)
    if isinstance(bins, dict):  # one number for all axes: the largest
        bins = max((size for size in bins.values() if isinstance(size, int)), default=10)
    return IslandOptions(
        num_islands=int(database.number("num_islands", 5, low=1)),
        feature_dimensions=features,
        feature_bins=bins,
        elite_selection_ratio=database.number("elite_selection_ratio", 0.1, high=1.0),
        exploration_ratio=database.number("exploration_ratio", 0.2, high=1.0),
        exploitation_ratio=database.number("exploitation_ratio", 0.7, high=1.0),
        migration_interval=int(database.number("migration_interval", 50, low=1)),
        migration_rate=database.number("migration_rate", 0.1, high=1.0),
        archive_size=int(database.number("archive_size", 100, low=1)),
        inspirations=int(prompt.number("num_top_programs", 3)),
    )


def _models(llm: _Section, where: str) -> tuple[ModelConfig, ...]:
    listed = llm.get("models", list, [])
    models = []
    for number, section in enumerate(listed):
        if not isinstance(section, Mapping) or not isinstance(section.get("name"), str):
            raise InputError(f"{where}: llm.models[{number}] is {section!r}; it must have a name")
        models.append(_model({**llm.options, **section}, where))
    for kind, weight in (("primary", 1.0), ("secondary", 0.2)):
        name = llm.get(f"{kind}_model", str, None)
        share = llm.number(f"{kind}_model_weight", weight)
        if name and share > 0:
            models.append(_model({**llm.options, "name": name, "weight": share}, where))
    return tuple(models)


def _ignored_of_models(llm: _Section) -> list[str]:
    """Options of single models that have no effect, each once."""
    listed = [section for section in llm.get("models", list, []) if isinstance(section, Mapping)]
    names = {str(name): None for section in listed for name in section if name not in _MODEL}
    return [f"llm.models[].{name}" for name in names]


def _model(section: Mapping[str, Any], where: str) -> ModelConfig:
    options = _Section({"llm": section}, "llm", where)
    settings = {
        name: options.get(name, (int, float), None) for name in ("temperature", "top_p", "max_tokens")
    }
    return ModelConfig(
        name=section["name"],
        api_base=options.get("api_base", str, "https://api.openai.com/v1"),
        # Not through `options`, whose errors show the value.
        api_key=_resolved(section.get("api_key"), where),
        weight=options.number("weight", 1.0),
        settings={name: value for name, value in settings.items() if value is not None},
        retry=_retry(options),
    )


def _retry(section: _Section) -> Retry:
    usual = Retry()
    seconds = section.number("timeout", usual.attempt_seconds, low=0.001)
    # Their `retries` counts the attempts after the first.
    attempts = 1 + int(section.number("retries", usual.attempts - 1))
    total = max(usual.total_seconds, seconds * attempts)
    return Retry(attempts=attempts, attempt_seconds=seconds, total_seconds=total)


def _resolved(value: Any, where: str) -> str | None:
    if value is None:
        return None
    match = _VARIABLE.match(str(value))
    if not match:
        return str(value)
    variable = os.environ.get(match[1])
    if variable is None:
        raise InputError(f"{where}: llm.api_key names the variable {match[1]}, which is not set. Export it.")
    return variable


def write_checkpoint(
    folder: Path, records: Sequence[ProposalRecord], members: Sequence[Judged], islands: int, main: str
) -> Path:
    """Write a checkpoint for `openevolve --checkpoint`: `checkpoint_N` with metadata.json and programs/*.json.

    Args:
        folder: in which `checkpoints/checkpoint_N` is made; N is the last proposal.
        records: of all proposals.
        members: the population; only they are written, and the best.
        islands: how many the population has.
        main: the part that is a program's code; others go to its metadata.

    Returns:
        The folder that was made.
    """
    last = max((record.number for record in records), default=0)
    # The records of an outcome are without theirs (`engine.Search._enter`).
    artifacts = {member.number: member.artifacts for member in members}
    by_number = {
        record.number: replace(record, artifacts=artifacts.get(record.number, record.artifacts))
        for record in records
        if record.parts is not None
    }
    survivors = [by_number[member.number] for member in members if member.number in by_number]
    best = max(by_number.values(), key=lambda record: (record.score or 0.0, -record.number))
    if best not in survivors:
        survivors.append(best)
    checkpoint = folder / "checkpoints" / f"checkpoint_{last}"
    (checkpoint / "programs").mkdir(parents=True, exist_ok=True)
    now = time.time()
    for record in survivors:
        text = json.dumps(_program(record, by_number, main, now))
        (checkpoint / "programs" / f"{record.id}.json").write_text(text, encoding="utf-8")
    on_island: list[list[str]] = [[] for _ in range(islands)]
    for record in survivors:
        on_island[record.island % islands].append(record.id)
    scores = {record.id: record.score or 0.0 for record in survivors}
    metadata = {
        "island_feature_maps": [{} for _ in range(islands)],
        "islands": on_island,
        "archive": [record.id for record in survivors],
        "best_program_id": best.id,
        "island_best_programs": [max(ids, key=lambda id: scores[id], default=None) for ids in on_island],
        "last_iteration": last,
        "current_island": 0,
        "island_generations": [last // islands] * islands,
        "last_migration_generation": 0,
        "feature_stats": {},
    }
    (checkpoint / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    _write_best(checkpoint, best, by_number, main, last)
    return checkpoint


def _program(
    record: ProposalRecord, by_number: Mapping[int, ProposalRecord], main: str, now: float
) -> dict[str, Json]:
    parts = dict(record.parts or {})
    size = sum(map(len, parts.values()))
    parent = by_number.get(record.parent) if record.parent is not None else None
    return {
        "id": record.id,
        "code": parts.pop(main),
        "changes_description": record.operator,
        "language": _language(main),
        "parent_id": parent.id if parent else None,
        "generation": _generation(record, by_number),
        "timestamp": now,
        "iteration_found": record.number,
        "metrics": dict(record.metrics),
        "complexity": float(size),
        "diversity": 0.0,
        "metadata": {
            "island": record.island,
            "changes": record.operator,
            **({"parts": parts} if parts else {}),
        },
        "prompts": None,
        "artifacts_json": json.dumps(dict(record.artifacts)) if record.artifacts else None,
        "artifact_dir": None,
        "embedding": None,
    }


def _generation(record: ProposalRecord, by_number: Mapping[int, ProposalRecord]) -> int:
    steps = 0
    above = record
    while above.parent is not None and above.parent in by_number:
        above, steps = by_number[above.parent], steps + 1
    return steps


def _write_best(
    checkpoint: Path, best: ProposalRecord, by_number: Mapping[int, ProposalRecord], main: str, last: int
) -> None:
    suffix = Path(main).suffix
    (checkpoint / f"best_program{suffix}").write_text((best.parts or {})[main], encoding="utf-8")
    info = {
        "id": best.id,
        "generation": _generation(best, by_number),
        "iteration": best.number,
        "current_iteration": last,
        "metrics": dict(best.metrics),
        "language": _language(main),
        "timestamp": time.time(),
        "saved_at": time.time(),
    }
    (checkpoint / "best_program_info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")


def _language(main: str) -> str:
    return {".py": "python", ".rs": "rust", ".js": "javascript", ".r": "r"}.get(Path(main).suffix, "text")


class _Stored(msgspec.Struct):
    """The fields that are read of a program in a checkpoint."""

    code: str
    metadata: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None


def read_checkpoint(folder: Path, main: str) -> list[Program]:
    """The programs of an OpenEvolve checkpoint, the best first; scores are not taken over.

    A score is only worth what judged it, so the programs are judged anew.

    Raises:
        InputError: not a checkpoint, or a program in it that cannot be read.
    """
    if not (folder / "metadata.json").is_file():
        raise InputError(f"{folder} is not an OpenEvolve checkpoint: it has no metadata.json")
    scored: list[tuple[float, str, Program]] = []
    for path in sorted((folder / "programs").glob("*.json")):
        try:
            data = msgspec.json.decode(path.read_bytes(), type=_Stored)
            program = Program({main: data.code, **((data.metadata or {}).get("parts") or {})}, main)
            score = float((data.metrics or {}).get("combined_score", 0.0))
        except (msgspec.MsgspecError, UnicodeDecodeError, InputError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a program of an OpenEvolve checkpoint: {error}") from error
        scored.append((-score, path.name, program))
    if not scored:
        raise InputError(f"{folder} holds no program: {folder / 'programs'} is empty")
    scored.sort(key=lambda row: row[:2])
    return [program for _, _, program in scored]
