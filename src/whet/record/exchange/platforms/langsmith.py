"""LangSmith: runs and feedback as its SDK lists them and bulk exports hold them, and examples of datasets.

Source: langsmith 0.15 (Python), `schemas.Run`, `types.Run` (v2), `schemas.Feedback`, `schemas.Example`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from msgspec import UNSET

from ....errors import NotFoundError
from ....types import Json
from ...tracing.dialects.values import structure
from .fetch import Api, one_project
from .holdings import By, Holdings, Opinion, error_of, lone, names, nanoseconds

KEYS = ("LANGSMITH_API_KEY",)
_BY: dict[str, By] = {"app": "person", "model": "judge", "auto_eval": "judge"}
_LLM = frozenset({"llm", "chat_model"})
_RUN = names(
    """
    id name run_type start_time end_time inputs outputs error extra metadata parent_run_id parent_run_ids
    trace_id tags prompt_tokens completion_tokens total_cost session_id project_id thread_id serialized events
    reference_example_id attachments child_run_ids child_runs feedback_stats app_path manifest_id status
    total_tokens prompt_token_details completion_token_details first_token_time prompt_cost completion_cost
    prompt_cost_details completion_cost_details dotted_order in_dataset is_root is_in_dataset latency_seconds
    inputs_preview outputs_preview error_preview share_url manifest ls_user_id last_queued_at price_model_id
    query_metadata reference_dataset_id session_name execution_order s3_urls inputs_s3_urls outputs_s3_urls
    tenant_id latency trace_tier trace_upgrade ttl_seconds trace_min_start_time trace_max_start_time
    thread_evaluation_time trace_first_received_at last_queued_at messages
    """
)
_FEEDBACK = names(
    """
    id run_id trace_id key score value comment correction feedback_source created_at modified_at session_id
    start_time comparative_experiment_id feedback_group_id extra feedback_thread_id is_root
    """
)
_CONFIG = names(
    "id feedback_key feedback_config tenant_id modified_at is_lower_score_better is_enforced is_first"
)
_EXAMPLE = names(
    """
    id inputs outputs metadata dataset_id dataset_name split created_at modified_at source_run_id attachments
    name attachment_urls
    """
)
_OWN = ("ls_", "LANGSMITH_", "LANGCHAIN_", "langgraph_", "lc_", "checkpoint_", "__")
_OWN_KEYS = frozenset({"usage_metadata", "thread_id", "session_id", "conversation_id", "user_id", "runtime"})


def read(record: Mapping[str, Json], holdings: Holdings) -> bool:
    """Add one record; False if it is none of LangSmith's."""
    if "run_type" in record and "start_time" in record:
        _run(record, holdings)
    elif "key" in record and ("score" in record or "run_id" in record):
        _feedback(record, holdings)
    elif "feedback_key" in record and "feedback_config" in record:
        _config(record, holdings)
    elif "inputs" in record and ("dataset_id" in record or "outputs" in record):
        _example(record, holdings)
    elif any(name.startswith(("inputs.", "input_", "outputs.", "output_")) for name in record):
        _example(_nested(record), holdings)
    else:
        return False
    return True


def _run(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _RUN)
    above = structure(record.get("parent_run_ids"))
    parent = record.get("parent_run_id") or (above[-1] if isinstance(above, list) and above else None)
    id = str(record["id"])
    trace = str(record.get("trace_id") or (above[0] if isinstance(above, list) and above else id))
    extra = structure(record.get("extra"))
    stated = extra.get("metadata") if isinstance(extra, dict) else None
    metadata = structure(record.get("metadata")) or structure(stated) or {}
    assert isinstance(metadata, dict)
    kind = str(record["run_type"]).lower()
    spent = metadata.get("usage_metadata") or {}
    prompt = record.get("prompt_tokens") or (spent.get("input_tokens") if kind in _LLM else None)
    output = record.get("completion_tokens") or (spent.get("output_tokens") if kind in _LLM else None)
    attributes: dict[str, Json] = {
        "langsmith.span.kind": "llm" if kind in _LLM else kind,
        "langsmith.trace.name": record.get("name"),
        "gen_ai.prompt": structure(record.get("inputs")) or record.get("inputs") or None,
        "gen_ai.completion": structure(record.get("outputs")) or record.get("outputs") or None,
    }
    if kind == "tool":
        attributes["gen_ai.tool.name"] = record.get("name")
        attributes["gen_ai.completion"] = lone(record.get("outputs"))
    if kind in _LLM:
        # A chain states the sum of its calls, which would count them twice.
        model = metadata.get("ls_model_name")
        attributes |= {"gen_ai.request.model": model, "gen_ai.usage.cost": _number(record.get("total_cost"))}
        attributes |= {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": output}
    started = nanoseconds(record["start_time"])
    holdings.span(
        trace=trace,
        id=id,
        parent=str(parent) if parent else None,
        name=str(record.get("name") or kind),
        started=started,
        ended=nanoseconds(record.get("end_time")) or started,
        attributes=attributes,
        error=error_of(str(record["error"])) if record.get("error") else None,
    )
    note = holdings.note(trace)
    for key in ("session_id", "thread_id", "conversation_id"):
        note.session = note.session or metadata.get(key)
    note.session = note.session or record.get("thread_id")
    note.subject = note.subject or metadata.get("user_id")
    tags = structure(record.get("tags"))
    note.tags += [tag for tag in tags if tag not in note.tags] if isinstance(tags, list) else []
    if revision := metadata.get("revision_id"):
        note.versions.setdefault("revision", str(revision))
    if name := metadata.get("lc_hub_repo") or metadata.get("prompt_name"):
        note.versions[f"prompt:{name}"] = str(metadata.get("lc_hub_commit_hash") or "")
    if not parent:
        note.metadata |= {
            key: value
            for key, value in metadata.items()
            if not key.startswith(_OWN) and key not in _OWN_KEYS and key != "revision_id"
        }
    # Some exports nest the runs inside.
    for child in structure(record.get("child_runs")) or ():
        if isinstance(child, dict):
            read({"trace_id": trace, "parent_run_id": id, **child}, holdings)


def _number(value: Json) -> float | None:
    return None if value in (None, "") else float(value)


def _feedback(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _FEEDBACK)
    source = structure(record.get("feedback_source"))
    told = source if isinstance(source, dict) else {}
    correction = structure(record.get("correction")) or record.get("correction")
    score, value = record.get("score"), record.get("value")
    if isinstance(value, dict | list):  # LangGraph's own, of several parts
        value = None
    holdings.opinion(
        Opinion(
            id=str(record["id"]),
            name=str(record["key"]),
            value=value if score is None else score,
            by=_BY.get(str(told.get("type")), "unsaid"),
            author=str(told.get("user_id") or ""),
            comment=str(record.get("comment") or ""),
            correction=lone(correction) if correction not in (None, "", {}) else UNSET,
            at=nanoseconds(record.get("modified_at") or record.get("created_at")) / 1e9,
            trace=str(record.get("trace_id") or ""),
            span=str(record.get("run_id") or ""),
            scale=str(record["key"]),
        )
    )


def _config(record: Mapping[str, Json], holdings: Holdings) -> None:
    """The range of a key; of several the enforced one counts, else the first, which feedback is written against."""
    holdings.unknown(record, _CONFIG)
    key, bounds = str(record["feedback_key"]), structure(record["feedback_config"])
    leads = record.get("is_enforced") or record.get("is_first")
    if isinstance(bounds, dict) and (leads or key not in holdings.ranges):
        holdings.declare(key, bounds.get("min"), bounds.get("max"))


def _example(record: Mapping[str, Json], holdings: Holdings) -> None:
    holdings.unknown(record, _EXAMPLE)
    metadata = structure(record.get("metadata"))
    told = dict(metadata) if isinstance(metadata, dict) else {}
    split = told.pop("dataset_split", record.get("split"))
    outputs = structure(record.get("outputs")) or record.get("outputs")
    holdings.task(
        dataset=str(record.get("dataset_name") or record.get("dataset_id") or ""),
        id=str(record.get("id") or record.get("inputs")),
        input=record.get("inputs"),
        expected=UNSET if outputs in (None, "", {}) else outputs,
        metadata=told,
        split=str(split[0] if isinstance(split, list) and split else split or ""),
    )


def _nested(record: Mapping[str, Json]) -> dict[str, Json]:
    """A row of the CSV that the product writes of a dataset, whose columns are `input_NAME` and `output_NAME`."""
    nested: dict[str, Json] = {"inputs": {}, "outputs": {}}
    for column, value in record.items():
        for side in ("inputs", "outputs"):
            for prefix in (f"{side}.", f"{side[:-1]}_"):
                if column.startswith(prefix):
                    nested[side][column.removeprefix(prefix)] = value
                    break
            else:
                continue
            break
        else:
            nested[column] = value
    return {**nested, "id": record.get("id") or str(sorted(nested["inputs"].items()))}


def fetch(api: Api, project: str | None, since: str | None) -> Iterator[Mapping[str, Json]]:
    """Runs of one project with their feedback and its ranges, and the examples of all datasets."""
    sessions = {str(one["name"]): str(one["id"]) for one in api.rows("/sessions", offset="offset", size=100)}
    chosen = one_project(sessions, project)
    ids: list[str] = []
    for run in _runs(api, chosen, since):
        ids.append(str(run["id"]))
        yield run
    for start in range(0, len(ids), 50):
        query = [("run", id) for id in ids[start : start + 50]]
        yield from api.rows("/feedback", query=query, offset="offset", size=100)
    with suppress(NotFoundError):  # a server of one's own that is older than that
        yield from api.rows("/feedback-configs", offset="offset", size=100)
    for dataset in api.rows("/datasets", offset="offset", size=100):
        query = [("dataset", str(dataset["id"]))]
        for example in api.rows("/examples", query=query, offset="offset", size=100):
            yield {**example, "dataset_name": dataset.get("name")}


def _runs(api: Api, project: str, since: str | None) -> Iterator[Mapping[str, Json]]:
    selects = [
        *(
            "ID",
            "NAME",
            "RUN_TYPE",
            "START_TIME",
            "END_TIME",
            "ERROR",
            "EXTRA",
            "METADATA",
            "INPUTS",
            "OUTPUTS",
        ),
        *(
            "PARENT_RUN_IDS",
            "TRACE_ID",
            "THREAD_ID",
            "TAGS",
            "PROMPT_TOKENS",
            "COMPLETION_TOKENS",
            "TOTAL_COST",
        ),
    ]
    body: dict[str, Json] = {"project_ids": [project], "page_size": 100, "selects": selects}
    after = {"min_start_time": since} if since else {}
    try:
        yield from api.rows("/api/v2/runs/query", body=body | after, at="items", cursor="next_cursor")
    except NotFoundError:  # a server of one's own that is older than that
        body = {"session": [project], "limit": 100, **({"start_time": since} if since else {})}
        yield from api.rows("/runs/query", body=body, at="runs", cursor="cursors.next")


def headers(keys: Mapping[str, str]) -> dict[str, str]:
    """What its API wants to see."""
    return {"x-api-key": keys["LANGSMITH_API_KEY"]}
