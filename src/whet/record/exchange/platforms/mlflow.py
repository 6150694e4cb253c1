"""MLflow: traces as `Trace.to_json` writes them, tables of `search_traces`, its database or folder, and datasets.

Source: mlflow 3.17 (Python), `mlflow.entities.Trace`; the database's tables are those of its schema of 3.6 and later.
The folder is the `mlruns` of a file store, tried with 2.22 and 3.17, which has no datasets.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import UNSET

from ....errors import InputError
from ....types import Json
from ...tracing.dialects.values import parsed, structure
from ...yaml_files import read_yaml
from .fetch import Api, one_project
from .holdings import By, Holdings, Opinion, error_of, lone, names, nanoseconds

KEYS = ()
_BY: dict[str, By] = {"HUMAN": "person", "LLM_JUDGE": "judge", "AI_JUDGE": "judge", "CODE": "judge"}
_TRACE = names(
    """
    info data spans trace_id trace client_request_id state request_time execution_duration request response
    trace_metadata tags assessments execution_duration_ms trace_info
    """
)
_INFO = names(
    """
    trace_id request_id trace_location request_time state trace_metadata assessments tags request_preview
    response_preview execution_duration_ms execution_duration client_request_id experiment_id timestamp_ms
    execution_time_ms status request_metadata version
    """
)
_RECORD = names(
    """
    inputs outputs expectations tags source_type source_id source created_time dataset_record_id dataset
    last_update_time created_by last_updated_by dataset_id input_hash
    """
)
_OWN = "mlflow."
_INFO_FILE = "trace_info.yaml"
_EXPECTED = ("expected_response", "expected_output", "expected_answer", "answer", "ground_truth")
"""Names of expectations that are the right answer; others are what an answer is checked for."""


def read(record: Mapping[str, Json], holdings: Holdings) -> bool:
    """Add one record; False if it is none of MLflow's."""
    whole = structure(record.get("trace"))
    if isinstance(whole, dict) and "info" in whole:
        # A row of the table: the trace is in it as JSON, and as columns beside that.
        _trace(whole, holdings)
    elif isinstance(record.get("info"), dict):
        _trace(record, holdings)
    elif "dataset_record_id" in record or ("inputs" in record and "expectations" in record):
        _row(record, holdings)
    elif "trace_id" in record and "spans" in record:
        _trace({"info": {**record, "spans": None}, "data": {"spans": structure(record["spans"])}}, holdings)
    else:
        return False
    return True


def _trace(record: Mapping[str, Json], holdings: Holdings) -> None:
    info = record["info"]
    holdings.unknown(record, _TRACE)
    holdings.unknown(info, _INFO | {"spans", "request", "response"})
    trace = str(info.get("trace_id") or info.get("request_id"))
    data = structure(record.get("data"))
    spans = data.get("spans") if isinstance(data, dict) else record.get("spans")
    for span in spans or ():
        _span(trace, span, holdings)
    note = holdings.note(trace)
    metadata = _object(info.get("trace_metadata")) or _object(info.get("request_metadata"))
    tags = _object(info.get("tags"))
    note.session = metadata.get("mlflow.trace.session") or note.session
    note.subject = metadata.get("mlflow.trace.user") or note.subject
    for key, name in (("mlflow.source.git.commit", "git"), ("mlflow.modelId", "model")):
        if metadata.get(key):
            note.versions[name] = str(metadata[key])
    for prompt in structure(tags.get("mlflow.linkedPrompts")) or ():
        if isinstance(prompt, dict):
            note.versions[f"prompt:{prompt.get('name')}"] = str(prompt.get("version") or "")
    note.tags += [f"{key}={value}" for key, value in tags.items() if not key.startswith(_OWN)]
    note.metadata |= {key: value for key, value in metadata.items() if not key.startswith(_OWN)}
    note.input, note.output = metadata.get("mlflow.traceInputs"), metadata.get("mlflow.traceOutputs")
    for assessment in structure(info.get("assessments")) or ():
        if isinstance(assessment, dict):
            _assessment(trace, assessment, holdings)


def _object(value: Json) -> dict[str, Json]:
    held = structure(value)
    return held if isinstance(held, dict) else {}


def _span(trace: str, span: Mapping[str, Json], holdings: Holdings) -> None:
    attributes = dict(_object(span.get("attributes")))
    # The span of a released API names its type and what it is given beside the attributes.
    for key, name in (
        ("span_type", "mlflow.spanType"),
        ("inputs", "mlflow.spanInputs"),
        ("outputs", "mlflow.spanOutputs"),
    ):
        if span.get(key) is not None:
            attributes.setdefault(name, span[key])
    attributes.setdefault("mlflow.spanType", "UNKNOWN")
    attributes.pop("mlflow.traceRequestId", None)
    status = span.get("status")
    beside = {"code": span.get("status_code", status), "message": span.get("status_message")}
    told = status if isinstance(status, dict) else beside
    failed = str(told.get("code")).rpartition("_")[2].upper() in ("ERROR", "2")
    error = error_of(str(told.get("message") or "it failed")) if failed else None
    for event in structure(span.get("events")) or ():
        held = _object(event.get("attributes"))
        if failed and held.get("exception.type"):
            error = str(held["exception.type"]), str(held.get("exception.message") or "")
    holdings.span(
        trace=trace,
        id=_hex(span.get("span_id") or _object(span.get("context")).get("span_id")),
        parent=_hex(span.get("parent_span_id") or span.get("parent_id")) or None,
        name=str(span.get("name") or ""),
        started=nanoseconds(span.get("start_time_unix_nano") or span.get("start_time")),
        ended=nanoseconds(span.get("end_time_unix_nano") or span.get("end_time")),
        attributes=attributes,
        error=error,
    )


def _hex(id: Json) -> str:
    """A span's id as 16 digits; `Trace.to_json` has it in base64, others in hex."""
    text = str(id or "")
    digits = text.removeprefix("0x")
    if len(digits) == 16:
        return digits
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return digits


def _assessment(trace: str, stated: Mapping[str, Json], holdings: Holdings) -> None:
    if stated.get("valid") is False:
        return  # another one took its place
    source = _object(stated.get("source"))
    name = str(stated.get("assessment_name") or stated.get("name") or "")
    feedback, expectation = _object(stated.get("feedback")), _object(stated.get("expectation"))
    value: Json = feedback.get("value")
    correction: Json = UNSET
    if expectation:
        wanted = expectation.get("value", _object(expectation.get("serialized_value")).get("value"))
        wanted = parsed(wanted) if isinstance(wanted, str) else wanted
        if name not in _EXPECTED:
            holdings.note(trace).metadata[f"expected:{name}"] = wanted
            return
        correction = wanted
    error = _object(feedback.get("error"))
    holdings.opinion(
        Opinion(
            id=str(stated.get("assessment_id") or f"{trace}:{name}"),
            name=name,
            value=value,
            by=_BY.get(str(source.get("source_type")).upper(), "unsaid"),
            author=str(source.get("source_id") or ""),
            comment=str(stated.get("rationale") or ""),
            correction=correction,
            error=": ".join(
                filter(None, (str(error.get("error_code") or ""), str(error.get("error_message") or "")))
            ),
            at=nanoseconds(stated.get("last_update_time") or stated.get("create_time")) / 1e9,
            trace=trace,
            span=_hex(stated.get("span_id")),
        )
    )


def _row(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _RECORD)
    expectations = _object(record.get("expectations"))
    right = next((expectations[name] for name in _EXPECTED if expectations.get(name) is not None), UNSET)
    others = {name: value for name, value in expectations.items() if name not in _EXPECTED}
    tags = {key: value for key, value in _object(record.get("tags")).items() if not key.startswith(_OWN)}
    holdings.task(
        dataset=str(record.get("dataset") or record.get("dataset_id") or ""),
        id=str(record.get("dataset_record_id") or record.get("inputs")),
        input=record.get("inputs"),
        expected=right if right is UNSET else lone(right),
        metadata={**tags, **({"expectations": others} if others else {})},
    )


def database(path: Path) -> Iterator[Mapping[str, Json]]:
    """The records of a tracking database of MLflow (SQLite), which is only read.

    Raises:
        InputError: it is another database, or of an MLflow before 3.6, which kept spans elsewhere.
    """
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        tables = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if not {"trace_info", "spans", "assessments"} <= tables:
            raise InputError(
                f"{path} is not a tracking database of MLflow 3.6 or later; mlflow db upgrade sqlite:///{path} brings "
                "an older one up to date"
            )
        for row in connection.execute("SELECT * FROM trace_info ORDER BY timestamp_ms").fetchall():
            # Before 3.8 the session was a piece of metadata, as the user is.
            yield _recorded(connection, row["request_id"], dict(row).get("session_id"))
        if "evaluation_dataset_records" in tables:
            named = dict(connection.execute("SELECT dataset_id, name FROM evaluation_datasets").fetchall())
            for row in connection.execute("SELECT * FROM evaluation_dataset_records"):
                yield {**dict(row), "dataset": named.get(row["dataset_id"])}
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as MLflow's database: {error}") from error
    finally:
        connection.close()


def traces_in(folder: Path) -> list[Path]:
    """The folders of traces in a file store, or in a folder of it or around it, in order."""
    infos = sorted(folder.rglob(f"traces/*/{_INFO_FILE}"))
    return [info.parent for info in infos if ".trash" not in info.relative_to(folder).parts]


def stored(trace: Path) -> Mapping[str, Json]:
    """The record of one trace of a file store.

    Raises:
        MissingExtra: it has assessments, and PyYAML is not installed.
        InputError: one of its files cannot be read.
    """
    # Beside it alone: where its tags say that they are, nobody here has asked us to read.
    spans = trace / "artifacts" / "traces.json"
    whole = _object(_text(spans)) if spans.is_file() else {}
    folder = trace / "assessments"
    assessments = [read_yaml(file, _text(file)) for file in sorted(folder.glob("*.yaml"))]
    return {
        "info": {
            "trace_id": trace.name,
            "trace_metadata": _texts(trace / "request_metadata"),
            "tags": _texts(trace / "tags"),
            "assessments": assessments,
        },
        "data": {"spans": whole.get("spans") or []},
    }


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def _texts(folder: Path) -> dict[str, Json]:
    """Name → text, of a folder with a file for each; a name with slashes lies in folders."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.relative_to(folder).as_posix(): _text(file) for file in files}


def _recorded(connection: sqlite3.Connection, id: str, session: str | None) -> Mapping[str, Json]:
    def pairs(table: str) -> dict[str, Json]:
        return dict(
            connection.execute(f"SELECT key, value FROM {table} WHERE request_id = ?", (id,)).fetchall()
        )

    assessments = []
    for row in connection.execute("SELECT * FROM assessments WHERE trace_id = ?", (id,)):
        value = parsed(row["value"])
        stated: dict[str, Json] = {
            "assessment_id": row["assessment_id"],
            "name": row["name"],
            "source": {"source_type": row["source_type"], "source_id": row["source_id"]},
            "rationale": row["rationale"],
            "create_time": row["created_timestamp"],
            "last_update_time": row["last_updated_timestamp"],
            "span_id": row["span_id"],
            "valid": bool(row["valid"]),
        }
        if row["assessment_type"] == "expectation":
            stated["expectation"] = {"value": value}
        else:
            stated["feedback"] = {"value": value, "error": parsed(row["error"])}
        assessments.append(stated)
    contents = connection.execute("SELECT content FROM spans WHERE trace_id = ?", (id,)).fetchall()
    metadata = {**({"mlflow.trace.session": session} if session else {}), **pairs("trace_request_metadata")}
    info = {"trace_id": id, "trace_metadata": metadata, "tags": pairs("trace_tags")}
    return {
        "info": {**info, "assessments": assessments},
        "data": {"spans": [parsed(text) for (text,) in contents]},
    }


def fetch(api: Api, project: str | None, since: str | None) -> Iterator[Mapping[str, Json]]:
    """Traces of one experiment with their assessments, and its evaluation datasets."""
    v2, v3 = "/api/2.0/mlflow", "/api/3.0/mlflow"
    found = api.rows(
        f"{v2}/experiments/search", body={"max_results": 1000}, at="experiments", cursor="next_page_token"
    )
    experiments = {str(one["name"]): str(one["experiment_id"]) for one in found}
    if len(experiments) > 1:
        experiments = {name: id for name, id in experiments.items() if name != "Default" or name == project}
    chosen = one_project(experiments, project)
    location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": chosen}}
    body: dict[str, Json] = {"locations": [location], "max_results": 100}
    if since:
        body["filter"] = f"timestamp_ms >= {nanoseconds(since) // 1_000_000}"
    for info in api.rows(f"{v3}/traces/search", body=body, at="traces", cursor="next_page_token"):
        query = [("trace_id", str(info["trace_id"])), ("allow_partial", "true")]
        for whole in api.rows(f"{v3}/traces/get", query=query, at="trace"):
            spans = whole.get("spans") or _object(whole.get("data")).get("spans")
            yield {
                "info": {**info, **_object(whole.get("trace_info"))},
                "data": {"spans": [_otlp(span) for span in spans or ()]},
            }
    searched = {"experiment_ids": [chosen], "max_results": 100}
    for dataset in api.rows(f"{v3}/datasets/search", body=searched, at="datasets", cursor="next_page_token"):
        path = f"{v3}/datasets/{dataset['dataset_id']}/records"
        for one in api.rows(path, query=[("max_results", "1000")], cursor="next_page_token"):
            for record in parsed(one.get("records")) or ():
                yield {**record, "dataset": dataset.get("name")}


def _otlp(span: Mapping[str, Json]) -> dict[str, Json]:
    """A span of the API, which is protobuf's JSON, as `Trace.to_json` has it."""
    held = span.get("attributes")
    if not isinstance(held, list):
        return dict(span)
    attributes = {pair["key"]: _any(pair.get("value")) for pair in held}
    events = [
        {
            **event,
            "attributes": {pair["key"]: _any(pair.get("value")) for pair in event.get("attributes", ())},
        }
        for event in span.get("events", ())
    ]
    times = {name: int(span[name]) for name in ("start_time_unix_nano", "end_time_unix_nano") if name in span}
    return {**span, **times, "attributes": attributes, "events": events}


def _any(value: Json) -> Json:
    held = next(iter(value.values()), None) if isinstance(value, dict) else value
    return held


def headers(keys: Mapping[str, str]) -> dict[str, str]:
    """What its server wants to see; one of one's own wants nothing."""
    if token := keys.get("MLFLOW_TRACKING_TOKEN"):
        return {"authorization": f"Bearer {token}"}
    if user := keys.get("MLFLOW_TRACKING_USERNAME"):
        pair = f"{user}:{keys.get('MLFLOW_TRACKING_PASSWORD', '')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}
