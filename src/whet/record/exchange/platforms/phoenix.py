"""Arize Phoenix: spans of its client (a table or its API's objects), annotations, and examples of datasets.

Source: arize-phoenix-client 3.5, `get_spans_dataframe`, `get_spans`, `get_span_annotations`, `to_dataframe`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import UNSET

from ....types import Json
from ...tracing.dialects.values import arguments_of, structure
from .fetch import Api, one_project
from .holdings import By, Holdings, Opinion, error_of, names, nanoseconds

KEYS = ()
_BY: dict[str, By] = {"HUMAN": "person", "LLM": "judge", "CODE": "judge"}
_SPAN = names(
    """
    id name span_kind parent_id start_time end_time status_code status_message events context attributes
    context.span_id context.trace_id cumulative_error_count cumulative_llm_token_count_prompt
    cumulative_llm_token_count_completion cumulative_llm_token_count_total
    """
)
_ANNOTATION = names(
    """
    id name annotation_name annotator_kind span_id trace_id session_id result result.score result.label
    result.explanation score label explanation metadata identifier created_at updated_at source user_id
    document_position
    """
)
_EXAMPLE = names(
    """
    id example_id node_id input output metadata updated_at source dataset splits external_id
    """
)
_READ_ELSEWHERE = ("session.id", "user.id", "tag.tags", "metadata")
_CORRECTION = frozenset(
    {"correction", "corrected", "expected", "reference", "ground_truth", "expected_output"}
)
"""Names of annotations by people whose explanation is what should have been answered."""


def read(record: Mapping[str, Json], holdings: Holdings) -> bool:
    """Add one record; False if it is none of Phoenix's."""
    if "span_kind" in record and ("context" in record or "context.span_id" in record):
        _span(record, holdings)
    elif "annotator_kind" in record:
        _annotation(record, holdings)
    elif "input" in record and ("output" in record or "metadata" in record):
        _example(record, holdings)
    else:
        return False
    return True


def _span(record: Mapping[str, Json], holdings: Holdings) -> None:
    held = record.get("attributes")
    stated = dict(held) if isinstance(held, Mapping) else {}
    columns = {
        name.removeprefix("attributes."): value
        for name, value in record.items()
        if name.startswith("attributes.")
    }
    attributes: dict[str, Json] = {}
    for name, value in (stated | columns).items():
        if name == "metadata":
            attributes[name] = value
        else:
            _flatten(name, value, attributes)
    holdings.unknown(
        {name: value for name, value in record.items() if not name.startswith("attributes.")}, _SPAN
    )
    context = record.get("context")
    ids = context if isinstance(context, Mapping) else {}
    trace = str(ids.get("trace_id") or record["context.trace_id"])
    id = str(ids.get("span_id") or record["context.span_id"])
    attributes.setdefault("openinference.span.kind", record["span_kind"])
    failed = str(record.get("status_code")).rpartition("_")[2] == "ERROR"
    holdings.span(
        trace=trace,
        id=id,
        parent=str(record.get("parent_id") or "") or None,
        name=str(record.get("name") or ""),
        started=nanoseconds(record["start_time"]),
        ended=nanoseconds(record.get("end_time") or record["start_time"]),
        attributes=attributes,
        error=_error(record) if failed else None,
    )
    note = holdings.note(trace)
    note.session = note.session or attributes.get("session.id")
    note.subject = note.subject or attributes.get("user.id")
    tags = structure(attributes.get("tag.tags"))
    note.tags += [tag for tag in tags if tag not in note.tags] if isinstance(tags, list) else []
    metadata = structure(attributes.get("metadata"))
    told = dict(metadata) if isinstance(metadata, dict) else {}
    told |= {
        name.removeprefix("metadata."): value
        for name, value in attributes.items()
        if name.startswith("metadata.")
    }
    note.metadata |= told
    for name in ("release", "version"):
        if isinstance(told.get(name), str):
            note.versions.setdefault(name, told[name])


def _error(record: Mapping[str, Json]) -> tuple[str, str]:
    for event in reversed(structure(record.get("events")) or ()):
        held = event.get("attributes") if isinstance(event, Mapping) else None
        if isinstance(held, Mapping) and (kind := held.get("exception.type")):
            return str(kind), str(held.get("exception.message") or "")
    return error_of(str(record.get("status_message") or "it failed"))


def _flatten(name: str, value: Json, into: dict[str, Json]) -> None:
    """Lists and objects of a table as the dotted attributes that they were."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(f"{name}.{key}", inner, into)
    elif isinstance(value, list | tuple) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            _flatten(f"{name}.{number}", inner, into)
    elif isinstance(value, float) and value.is_integer() and ".token_count." in name:
        into[name] = int(value)  # a table makes a column with an empty cell one of floats
    elif value is not None and value == value:
        into[name] = list(value) if isinstance(value, tuple) else value


def _annotation(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _ANNOTATION)
    result = record.get("result")
    told = dict(result) if isinstance(result, Mapping) else {}
    for key in ("score", "label", "explanation"):
        for name in (f"result.{key}", key):
            if record.get(name) is not None:
                told[key] = record[name]
    name = str(record.get("name") or record.get("annotation_name") or "")
    by = _BY.get(str(record["annotator_kind"]).upper(), "unsaid")
    comment = str(told.get("explanation") or "")
    correction: Json = UNSET
    if by == "person" and name.lower() in _CORRECTION and comment and told.get("score") is None:
        correction, comment = comment, ""
    score = told.get("score")
    holdings.opinion(
        Opinion(
            id=str(
                record.get("id") or msgspec.json.encode(dict(record), order="sorted", enc_hook=str).decode()
            ),
            name=name,
            value=told.get("label") if score is None else score,
            by=by,
            author=str(record.get("user_id") or ""),
            comment=comment,
            correction=correction,
            at=nanoseconds(record.get("updated_at") or record.get("created_at")) / 1e9,
            trace=str(record.get("trace_id") or ""),
            span=str(record.get("span_id") or ""),
            session=str(record.get("session_id") or ""),
        )
    )


def _example(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _EXAMPLE)
    # The table's CSV has the reprs of Python's dictionaries.
    input, output, metadata = (arguments_of(record.get(name)) for name in ("input", "output", "metadata"))
    holdings.task(
        dataset=str(record.get("dataset") or ""),
        id=str(record.get("id") or record.get("example_id") or record.get("input")),
        input=input,
        expected=UNSET if output in (None, "", {}) else output,
        metadata=metadata,
    )


def fetch(api: Api, project: str | None, since: str | None) -> Iterator[Mapping[str, Json]]:
    """Spans of one project with their annotations, and the examples of all datasets."""
    projects = {
        str(one["name"]): str(one["id"]) for one in api.rows("/v1/projects", at="data", cursor="next_cursor")
    }
    chosen = one_project(projects, project)
    query = [("limit", "500"), *([("start_time", since)] if since else [])]
    span_ids: list[str] = []
    for span in api.rows(f"/v1/projects/{chosen}/spans", query=query, at="data", cursor="next_cursor"):
        span_ids.append(str(span["context"]["span_id"]))
        yield span
    for start in range(0, len(span_ids), 50):
        named = [("limit", "1000"), *(("span_ids", id) for id in span_ids[start : start + 50])]
        yield from api.rows(
            f"/v1/projects/{chosen}/span_annotations", query=named, at="data", cursor="next_cursor"
        )
    for dataset in api.rows("/v1/datasets", at="data", cursor="next_cursor"):
        for examples in api.rows(f"/v1/datasets/{dataset['id']}/examples", at="data"):
            for example in examples.get("examples", ()):
                yield {**example, "dataset": dataset.get("name")}


def headers(keys: Mapping[str, str]) -> dict[str, str]:
    """What its API wants to see; a server of one's own wants nothing."""
    key = keys.get("PHOENIX_API_KEY")
    return {"authorization": f"Bearer {key}"} if key else {}
