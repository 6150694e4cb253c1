"""Judges that another product defined, read from its files: OpenAI Evals and their runs, MLflow, Langfuse, Phoenix.

Each definition becomes a `GraderSpec` (`graders.py`), and each item of an OpenAI run an answer with what its graders
gave it, so that a grader that nobody can ask any more is measured all the same.  Shapes are those that the products
write: `openai.types.EvalCreateResponse` and `OutputItemListResponse`, an MLflow scorer's `model_dump()`, a Langfuse
evaluator of its public API, a Phoenix `ClassificationEvaluatorConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError, NotFoundError
from ..record.rows import as_text
from ..types import Json
from .graders import GraderSpec

OPENAI, MLFLOW, LANGFUSE, PHOENIX = "OpenAI Evals", "MLflow", "Langfuse", "Phoenix"
_TYPES = ("string_check", "text_similarity", "score_model", "label_model", "python", "multi")
_PASSES = ("yes", "true", "pass", "passed", "correct", "good", "1")


@dataclass(frozen=True)
class GradedItem:
    """One item of a run of OpenAI Evals."""

    id: str
    item: Mapping[str, Json]
    output: str
    marks: Mapping[str, float | None]
    """Grader → what it gave; None where it gave none."""


@dataclass
class ImportedJudges:
    """What files define and recorded."""

    specs: list[GraderSpec] = field(default_factory=list)
    items: list[GradedItem] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """What is no judge, with its place."""


def read_judges(path: Path) -> ImportedJudges:
    """The judges and graded items of a JSON file, or of JSON Lines.

    Raises:
        NotFoundError: there is no such file.
        InputError: it is no JSON, or holds no judge.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}")
    try:
        whole: Json = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    judges = ImportedJudges()
    for place, entry in _entries(whole, str(path)):
        try:
            # MLflow's registry keeps a scorer as a text.
            content = msgspec.json.decode(entry) if isinstance(entry, str) else entry
            if not isinstance(content, Mapping):
                raise TypeError(f"it is {type(content).__name__}, not an object")
            _take(content, judges, place)
        except (AttributeError, KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
            judges.skipped.append(f"{place}: {type(error).__name__}: {error}")
    if not (judges.specs or judges.items):
        raise InputError(
            f"{path} holds no judge of OpenAI Evals, MLflow, Langfuse or Phoenix: "
            f"{'; '.join(judges.skipped[:3]) or 'it is empty'}"
        )
    names: dict[str, int] = {}
    for number, spec in enumerate(judges.specs):
        names[spec.name] = names.get(spec.name, 0) + 1
        if names[spec.name] > 1:
            judges.specs[number] = replace(spec, name=f"{spec.name} ({names[spec.name]})")
    return judges


def _entries(whole: Json, place: str) -> Iterator[tuple[str, Json]]:
    """What a file holds: itself, what stands in a list, or in a page (`data`)."""
    if isinstance(whole, Mapping) and isinstance(whole.get("data"), list):
        whole = whole["data"]
    entries = whole if isinstance(whole, list) else [whole]
    for number, entry in enumerate(entries, 1):
        where = place if len(entries) == 1 else f"{place}, entry {number}"
        yield where, entry


def _take(entry: Mapping[str, Any], judges: ImportedJudges, place: str) -> None:
    match entry:
        case {"object": "eval.run.output_item"}:
            judges.items.append(_output_item(entry))
        case {"testing_criteria": list(criteria)}:
            judges.specs += map(openai_grader, criteria)
        case {"type": str(kind)} if kind in _TYPES:
            judges.specs.append(openai_grader(entry))
        case {"serialization_version": _, "name": str()}:
            judges.specs.append(_mlflow(entry))
        case {"type": "llm_as_judge", "prompt": _}:
            judges.specs.append(_langfuse(entry))
        case {"choices": _, "name": str()}:
            judges.specs.append(_phoenix(entry))
        case {"object": "eval.run"}:
            judges.skipped.append(f"{place}: a run without its items; export its output items as well")
        case _:
            judges.skipped.append(f"{place}: no judge with the fields {', '.join(map(str, list(entry)[:6]))}")


# -- OpenAI -----------------------------------------------------------------------------------------


def openai_grader(content: Mapping[str, Any]) -> GraderSpec:
    """A grader of OpenAI's, by its type.

    Raises:
        KeyError: it lacks a field.
    """
    kind, name = str(content["type"]), str(content.get("name") or content["type"])

    def spec(kind: str, **more: Any) -> GraderSpec:
        return GraderSpec(name=name, product=OPENAI, kind=kind, **more)

    if kind == "string_check":
        settings = {key: content[key] for key in ("input", "reference", "operation")}
        if settings["operation"] not in ("eq", "ne", "like", "ilike"):
            raise ValueError(f"operation {settings['operation']!r} is unknown")
        return spec(kind, settings=settings)
    if kind == "text_similarity":
        settings = {
            "input": content["input"],
            "reference": content["reference"],
            "metric": content["evaluation_metric"],
        }
        return spec(kind, settings=settings)
    if kind == "python":
        return spec(kind, settings={"source": content["source"]})
    if kind in ("score_model", "label_model"):
        settings = {"messages": _messages(content["input"])}
        if kind == "label_model":
            passing = content["passing_labels"]
            settings["labels"] = {label: float(label in passing) for label in content["labels"]}
        elif content.get("range"):
            settings["range"] = [float(bound) for bound in content["range"]]
        return spec("prompt", settings=settings, model=str(content["model"]))
    if kind == "multi":
        return spec(kind, settings={"formula": content["calculate_output"]}, parts=_parts(content["graders"]))
    return spec("unsupported", note=f"graders of the type {kind} are unknown here")


def _parts(graders: Any) -> dict[str, GraderSpec]:
    """A multi grader's graders: by name, in a list, or the only one."""
    if isinstance(graders, Mapping) and "type" not in graders:
        return {str(name): openai_grader(one) for name, one in graders.items()}
    listed = graders if isinstance(graders, list) else [graders]
    return {spec.name: spec for spec in map(openai_grader, listed)}


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of a prompt, each begun with its role where that is none of the user's."""
    texts = []
    for message in messages:
        content = message["content"]
        parts = content if isinstance(content, list) else [content]
        text = "\n".join(
            part if isinstance(part, str) else str(part.get("text", "[image]")) for part in parts
        )
        texts.append(text if message.get("role", "user") == "user" else f"({message['role']}) {text}")
    return texts


def _output_item(entry: Mapping[str, Any]) -> GradedItem:
    outputs = (entry.get("sample") or {}).get("output") or []
    text = "".join(
        str(one.get("content") or "") for one in outputs if one.get("role", "assistant") == "assistant"
    )
    marks = {}
    for result in entry.get("results") or []:
        score = result.get("score")
        marks[str(result["name"])] = float(result["passed"] if score is None else score)
    # A result of the hosted graders is called by its grader and a UUID of its own.
    return GradedItem(str(entry["datasource_item_id"]), dict(entry["datasource_item"]), text, marks)


# -- the others -------------------------------------------------------------------------------------


def _mlflow(entry: Mapping[str, Any]) -> GraderSpec:
    name = str(entry["name"])
    judge = entry.get("instructions_judge_pydantic_data")
    if judge is None:
        built_in = entry.get("builtin_scorer_class")
        what = f"the built-in {built_in}" if built_in else "code or a third party's scorer"
        note = f"{what} runs inside MLflow alone: state its instructions with make_judge, and export that"
        return GraderSpec(name=name, product=MLFLOW, kind="unsupported", note=note)
    value = judge.get("feedback_value_type") or {}
    model = str(judge.get("model") or "").rpartition(":/")[2]
    settings: dict[str, Any] = {"messages": [judge["instructions"]]}
    note = ""
    if value.get("enum"):
        settings["labels"], note = _labels([str(one) for one in value["enum"]])
    elif value.get("type") == "boolean":
        settings["labels"] = {"true": 1.0, "false": 0.0}
    elif value.get("type") not in ("number", "integer"):
        settings["labels"] = {"yes": 1.0, "no": 0.0}
    return GraderSpec(name=name, product=MLFLOW, kind="prompt", settings=settings, model=model, note=note)


def _langfuse(entry: Mapping[str, Any]) -> GraderSpec:
    prompt, output = entry["prompt"], entry.get("outputDefinition") or {}
    settings: dict[str, Any] = {"messages": [prompt] if isinstance(prompt, str) else _messages(prompt)}
    note = ""
    kind = output.get("dataType", "NUMERIC")
    if kind == "BOOLEAN":
        settings["labels"] = {"true": 1.0, "false": 0.0}
    elif kind == "CATEGORICAL":
        settings["labels"], note = _labels([as_text(one) for one in output["categories"]])
    elif output.get("minValue") is not None and output.get("maxValue") is not None:
        settings["range"] = [float(output["minValue"]), float(output["maxValue"])]
    asked = entry.get("modelConfig") or {}
    return GraderSpec(
        name=str(entry["name"]),
        product=LANGFUSE,
        kind="prompt",
        settings=settings,
        model=str(asked.get("model", "")),
        note=note,
    )


def _phoenix(entry: Mapping[str, Any]) -> GraderSpec:
    template = entry.get("messages") or entry.get("prompt_template") or entry["template"]
    messages = _messages(template) if isinstance(template, list) else [str(template)]
    choices = entry["choices"]
    note = ""
    if isinstance(choices, Mapping):
        labels = {str(label): float(score) for label, score in choices.items()}
    else:
        labels, note = _labels([str(label) for label in choices])
    if entry.get("optimization_direction") == "minimize":
        # A high score is bad there: hallucinated 1, factual 0.
        labels = {label: 1 - score for label, score in labels.items()}
    return GraderSpec(
        name=str(entry["name"]),
        product=PHOENIX,
        kind="prompt",
        settings={"messages": [_doubled(text) for text in messages], "labels": labels},
        model=str(entry.get("model", "")),
        note=note,
    )


def _doubled(template: str) -> str:
    """A template whose variables stand in single braces, as one whose variables stand in double ones."""
    return template if "{{" in template else re.sub(r"\{(\w+)\}", r"{{\1}}", template)


def _labels(names: Sequence[str]) -> tuple[dict[str, float], str]:
    """Label → value: 1 for one that says so, else for the first; and a note where that was guessed."""
    passing = [name for name in names if name.casefold() in _PASSES]
    if passing:
        return {name: float(name in passing) for name in names}, ""
    return (
        {name: float(number == 0) for number, name in enumerate(names)},
        f"it does not say which of {', '.join(names)} is good: the first was taken",
    )
