"""Langfuse: items of an experiment with their scores, as its API gives them, or the results of `run_experiment`.

`client.api.experiments.list_items(..., fields="core,io,itemMetadata,scores").json()` is the first; of the second, each
row has `item`, `output` and `evaluations` with a `name` and a `value`.
"""

from __future__ import annotations

from typing import Any

from .file import ResultFile, decoded
from .rows import Reading, Row, as_text, id_of_input, mapping, named_scores


def claims(file: ResultFile) -> bool:
    """Whether it is a page of the API, or the rows are items."""
    if file.whole is not None and "data" in file.whole and "columns" not in file.whole:
        return b'"experimentItemId"' in bytes(file.whole["data"])
    first = file.first
    results = "item" in first and first.keys() & {"evaluations", "trace_id", "dataset_run_id"}
    return "experimentItemId" in first or bool(results)


def read(file: ResultFile) -> Reading:
    """The rows, by the id of the dataset's item, or by the input where it has none."""
    paged = file.whole is not None and "data" in file.whole
    reading = Reading("langfuse").take(file.member("data") if paged else file.objects(), _row)
    if file.whole is not None and "meta" in file.whole:
        meta = mapping(decoded(bytes(file.whole["meta"])))
        if meta.get("cursor"):
            reading.notes.append(
                f"{file.path} is one page of several: fetch the others with its cursor, and join them."
            )
    return reading


def _row(where: str, item: dict[str, Any]) -> Row:
    if "experimentItemId" in item:
        return Row(
            where=where,
            task=as_text(item["experimentItemId"], "experimentItemId") or id_of_input(item.get("input")),
            scores=named_scores(item.get("scores")),
            fields=mapping(item.get("metadata")) | mapping(item.get("experimentItemMetadata")),
            variant=str(item.get("experimentName") or ""),
        )
    source = mapping(item.get("item"))
    metadata = mapping(source.get("metadata"))
    named = source.get("id", metadata.get("id"))
    return Row(
        where=where,
        task=as_text(named, "id") if named is not None else id_of_input(source.get("input")),
        scores=named_scores(item.get("evaluations")),
        fields=metadata,
    )
