"""Langfuse: observations and scores of its API (v2, v3) and of its exports, traces as they were before, and datasets.

Source: langfuse 5.0 (Python), `langfuse.api`; the exports to blob storage have the same names, some with underscores.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from msgspec import UNSET

from ....types import Json
from ...tracing.dialects.values import parsed, structure
from .fetch import Api
from .holdings import By, Holdings, Opinion, error_of, names, nanoseconds

KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
_BY: dict[str, By] = {"ANNOTATION": "person", "EVAL": "judge"}
_OBSERVATION = names(
    """
    id traceId startTime endTime parentObservationId type isRootObservation name level statusMessage version
    userId sessionId input output metadata model modelParameters usageDetails usage costDetails totalCost
    calculatedTotalCost promptName promptVersion tags release traceName providedModelName projectId createdAt
    updatedAt environment bookmarked public latency timeToFirstToken completionStartTime unit internalModelId
    modelId inputPrice outputPrice totalPrice promptId usagePricingTierName usagePricingTierId
    calculatedInputCost calculatedOutputCost promptTokens completionTokens totalTokens inputUsage outputUsage
    totalUsage inputCost outputCost
    """
)
_TRACE = names(
    """
    id timestamp name input output sessionId userId release version tags metadata observations scores public
    projectId createdAt updatedAt externalId environment bookmarked latency totalCost htmlPath usage
    """
)
_SCORE = names(
    """
    id traceId sessionId observationId name source timestamp value stringValue comment dataType subject metadata
    authorUserId projectId createdAt updatedAt environment configId queueId datasetRunId executionTraceId trace
    longStringValue traceName userId
    """
)
_ITEM = names(
    """
    id input expectedOutput metadata datasetName datasetId status sourceTraceId sourceObservationId createdAt
    updatedAt mediaReferences version projectId validFrom
    """
)


_CONFIG = names(
    """
    id name dataType minValue maxValue categories isArchived description projectId createdAt updatedAt
    """
)


def read(record: Mapping[str, Json], holdings: Holdings) -> bool:
    """Add one record; False if it is none of Langfuse's."""
    record = {_camel(name): value for name, value in record.items()}
    if "expectedOutput" in record and "input" in record:
        _item(record, holdings)
    elif "startTime" in record and "traceId" in record:
        _observation(record, holdings)
    elif "dataType" in record and "isArchived" in record:
        holdings.unknown(record, _CONFIG)
        holdings.declare(str(record["id"]), record.get("minValue"), record.get("maxValue"))
    elif "timestamp" in record and ("dataType" in record or "value" in record or "stringValue" in record):
        _score(record, holdings)
    elif "id" in record and "timestamp" in record:
        _trace(record, holdings)
    else:
        return False
    return True


def _camel(name: str) -> str:
    """`parent_observation_id` as `parentObservationId`, which the API says."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def _observation(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _OBSERVATION)
    trace, type = str(record["traceId"]), str(record.get("type") or "SPAN").lower()
    model = record.get("model") or record.get("providedModelName")
    usage = structure(record.get("usageDetails")) or structure(record.get("usage"))
    cost = structure(record.get("costDetails"))
    total = record.get("totalCost") or record.get("calculatedTotalCost")
    if total is None and isinstance(cost, dict):
        total = cost.get("total")
    attributes: dict[str, Json] = {
        "langfuse.observation.type": "generation" if model and type == "span" else type,
        "langfuse.observation.input": record.get("input"),
        "langfuse.observation.output": record.get("output"),
        "langfuse.observation.model.name": model,
        "langfuse.observation.usage_details": usage,
        "langfuse.observation.cost_details": None if total is None else {"total": float(total)},
    }
    failed = str(record.get("level")) == "ERROR"
    holdings.span(
        trace=trace,
        id=str(record["id"]),
        parent=str(record.get("parentObservationId") or "") or None,
        name=str(record.get("name") or type),
        started=nanoseconds(record["startTime"]),
        ended=nanoseconds(record.get("endTime") or record["startTime"]),
        attributes=attributes,
        error=error_of(str(record.get("statusMessage") or "it failed")) if failed else None,
    )
    _said_of(trace, record, holdings)
    if prompt := record.get("promptName"):
        holdings.note(trace).versions[f"prompt:{prompt}"] = str(record.get("promptVersion") or "")


def _said_of(trace: str, record: Mapping[str, Json], holdings: Holdings) -> None:
    """Session, user, tags and versions, which each observation repeats."""
    note = holdings.note(trace)
    note.session = note.session or record.get("sessionId")
    note.subject = note.subject or record.get("userId")
    tags = structure(record.get("tags"))
    note.tags += [tag for tag in tags if tag not in note.tags] if isinstance(tags, list) else []
    for name in ("release", "version"):
        if record.get(name):
            note.versions.setdefault(name, str(record[name]))
    metadata = structure(record.get("metadata"))
    if isinstance(metadata, dict):
        note.metadata |= {
            name: parsed(value) for name, value in metadata.items() if name != "resourceAttributes"
        }


def _trace(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _TRACE)
    trace = str(record["id"])
    _said_of(trace, record, holdings)
    note = holdings.note(trace)
    note.input, note.output = record.get("input"), record.get("output")
    observations, scores = structure(record.get("observations")), structure(record.get("scores"))
    # The list of traces names the ids alone; one trace, and an export, have the objects.
    for inner in observations if isinstance(observations, list) else ():
        if isinstance(inner, dict):
            read({"traceId": trace, **inner}, holdings)
    for inner in scores if isinstance(scores, list) else ():
        if isinstance(inner, dict):
            read({"traceId": trace, **inner}, holdings)


def _score(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _SCORE)
    subject = structure(record.get("subject"))
    held = subject if isinstance(subject, dict) else {}
    kind, id = held.get("kind"), str(held.get("id") or "")
    trace = record.get("traceId") or (id if kind == "trace" else held.get("traceId"))
    span = record.get("observationId") or (id if kind == "observation" else "")
    session = record.get("sessionId") or (id if kind == "session" else "")
    type = str(record.get("dataType") or "").upper()
    text = record.get("stringValue") or record.get("longStringValue")
    value = record.get("value")
    comment = str(record.get("comment") or "")
    correction: Json = UNSET
    if type == "CORRECTION":
        correction, value = parsed(text if text is not None else value), None
    elif type == "TEXT":
        comment, value = "\n".join(filter(None, [str(text or value or ""), comment])), None
    elif type == "CATEGORICAL" and text is not None:
        value = text
    elif type == "BOOLEAN":
        value = value if isinstance(value, bool) else str(value).lower() in ("1", "1.0", "true")
    holdings.opinion(
        Opinion(
            id=str(record["id"]),
            name=str(record["name"]),
            value=parsed(value) if type == "NUMERIC" else value,
            by=_BY.get(str(record.get("source")).upper(), "unsaid"),
            author=str(record.get("authorUserId") or ""),
            comment=comment,
            correction=correction,
            at=nanoseconds(record.get("timestamp")) / 1e9,
            trace=str(trace or ""),
            span=str(span or ""),
            session=str(session or ""),
            scale=str(record.get("configId") or ""),
        )
    )


def _item(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _ITEM)
    if record.get("status") == "ARCHIVED":
        holdings.unread["an archived item of a dataset"] += 1
        return
    expected = record.get("expectedOutput")
    holdings.task(
        dataset=str(record.get("datasetName") or record.get("datasetId") or ""),
        id=str(record.get("id") or ""),
        input=record.get("input"),
        expected=UNSET if expected is None else expected,
        metadata=record.get("metadata"),
    )


def fetch(api: Api, project: str | None, since: str | None) -> Iterator[Mapping[str, Json]]:
    """Observations, scores with their ranges, and dataset items of the project that the keys are of."""
    groups = "core,basic,time,io,metadata,model,usage,prompt,metrics,trace_context"
    query = [("fields", groups), ("limit", "500"), *([("fromStartTime", since)] if since else [])]
    yield from api.rows("/api/public/v2/observations", query=query, at="data", cursor="meta.cursor")
    query = [("fields", "details,subject,annotation"), ("limit", "100")]
    query += [("fromTimestamp", since)] if since else []
    yield from api.rows("/api/public/v3/scores", query=query, at="data", cursor="meta.cursor")
    yield from api.rows("/api/public/score-configs", at="data", page="page", size=100)
    yield from api.rows("/api/public/dataset-items", at="data", page="page", size=100)


def headers(keys: Mapping[str, str]) -> dict[str, str]:
    """What its API wants to see."""
    pair = f"{keys['LANGFUSE_PUBLIC_KEY']}:{keys['LANGFUSE_SECRET_KEY']}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
