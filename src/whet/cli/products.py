"""`whet import langfuse|langsmith|phoenix|mlflow`: what another product holds, from its files or its server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from cyclopts import Parameter

from ..errors import InputError
from .root import counted, print_json, say_redacted

if TYPE_CHECKING:
    from ..record.exchange.platforms.files import Record
    from ..record.exchange.platforms.holdings import Holdings
    from ..record.exchange.platforms.landing import Landed

_SHOWN = 10
"""Lines that could not be read that are printed one by one."""
_ADDRESS = ("http://", "https://")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FromProduct:
    """Options of an import from another product."""

    thumbs: tuple[str, ...] = ()
    """A score whose values are people's thumbs, as NAME, or as NAME>=NUMBER of a scale ('stars>=4'). May be repeated.
    If omitted: what people gave as yes or no, 0 or 1, or a word such as thumbs-up."""
    project: str | None = None
    """Of a server: the project, or MLflow's experiment. If omitted, the only one."""
    since: str | None = None
    """Of a server: only what began then or later, as a date or a date with a time (ISO 8601)."""
    json: bool = False
    """Print one JSON object instead of text."""


FROM_PRODUCT = FromProduct()


def import_product(product: str, sources: Sequence[str], store: Path, options: FromProduct) -> int:
    """Read all sources, record what they hold, and say what came; 1 if a record could not be read.

    Raises:
        InputError: no source is named, or a whole file or server cannot be read; nothing was recorded.
    """
    import importlib

    from ..record.exchange.platforms.holdings import Holdings
    from ..record.exchange.platforms.landing import ThumbRules, land
    from ..record.store import Store

    if not sources:
        raise InputError(f"name the files that {product} exported, or the address of its server")
    rules = ThumbRules.of(options.thumbs)
    reader = importlib.import_module(f"..record.exchange.platforms.{product}", __package__)
    with closing(Holdings(product)) as holdings:
        servers: list[Any] = []
        for source in sources:
            for record in _records(reader, source, product, store, options, servers):
                _read(reader, record, holdings)
        with Store(store) as opened:
            landed = land(holdings, opened, rules)
    for server in servers:
        landed.redacted += server.redacted
        server.forget()
    return _say(store, landed, holdings, json=options.json)


def _say(store: Path, landed: Landed, holdings: Holdings, *, json: bool) -> int:
    if json:
        print_json(_plain(landed, holdings))
    else:
        for line in _sentences(store, landed, holdings):
            print(line)
        say_redacted(landed.redacted)
    for line in holdings.refused[:_SHOWN]:
        print(f"not read: {line}", file=sys.stderr)
    if len(holdings.refused) > _SHOWN:
        print(f"not read: {len(holdings.refused) - _SHOWN} more; --json lists all", file=sys.stderr)
    return 1 if holdings.refused else 0


def _records(
    reader: Any, source: str, product: str, store: Path, options: FromProduct, servers: list[Any]
) -> Iterator[Record]:
    from ..record.exchange.platforms.files import Record, files_of, is_database, records

    if source.startswith(_ADDRESS):
        if not hasattr(reader, "fetch"):
            raise InputError(f"{product} come from files, not from an address: {source}")
        api = _server(reader, source, product, store, servers)
        try:
            for number, fetched in enumerate(reader.fetch(api, options.project, options.since), 1):
                yield Record(f"{source}, object {number}", fetched)
        finally:
            api.close()
        if api.resumed:
            print(f"{counted(api.resumed, 'page')} had been read before it was interrupted", file=sys.stderr)
        return
    folders = reader.traces_in(Path(source)) if hasattr(reader, "traces_in") else []
    for folder in folders:
        yield Record(str(folder), reader.stored(folder))
    for file in [] if folders else files_of(Path(source)):
        if is_database(file):
            if not hasattr(reader, "database"):
                why = "a database, which is not read"
                if Path(source).is_dir():  # of something else that lies in the folder
                    yield Record(str(file), None, why)
                    continue
                raise InputError(f"{file} is {why}; give a file that {product} can be read from")
            for number, fetched in enumerate(reader.database(file), 1):
                yield Record(f"{file}, number {number}", fetched)
        else:
            yield from records(file)


def _server(reader: Any, url: str, product: str, store: Path, servers: list[Any]) -> Any:
    """The API at the address that was given, with the keys of the environment."""
    from ..record.exchange.platforms.fetch import Api
    from ..types import digest

    missing = [name for name in reader.KEYS if not os.environ.get(name)]
    if missing:
        raise InputError(f"{' and '.join(missing)} must be in the environment to read {url}")
    pages = store.with_name(f"{store.name}.import-{product}-{digest(url, 8)}")
    say = lambda text: print(text, file=sys.stderr)  # noqa: E731
    servers.append(Api(url, reader.headers(os.environ), pages, say))
    return servers[-1]


def _read(reader: Any, record: Record, holdings: Holdings) -> None:
    """Add one record, or note where and why it is not read."""
    if record.object is None:
        holdings.refused.append(f"{record.where}: {record.error}")
        return
    try:
        if not reader.read(record.object, holdings):
            fields = ", ".join(sorted(record.object)[:8])
            holdings.refused.append(f"{record.where}: nothing of {holdings.product} has the fields {fields}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        holdings.refused.append(f"{record.where}: {why}")


def _plain(landed: Landed, holdings: Holdings) -> Mapping[str, Any]:
    return {
        **msgspec.to_builtins(landed),
        "unread_fields": dict(holdings.unread),
        "not_read": list(holdings.refused),
    }


def _sentences(store: Path, landed: Landed, holdings: Holdings) -> Iterator[str]:
    """What came, a line each; what did not is said, too."""
    old = landed.runs - landed.new_runs - landed.updated_runs
    more = [f"{landed.updated_runs} brought up to date"] * bool(landed.updated_runs)
    more += [f"{old} already stored"] * bool(old > 0)
    yield f"{store}: {counted(landed.new_runs, 'run')} recorded{''.join(f', {words}' for words in more)}"
    if landed.thumbs_by:
        named = ", ".join(landed.thumbs_by)
        yield f"{landed.thumbs['up']} thumbs up and {landed.thumbs['down']} down, from {named}"
    if landed.feedback:
        yield f"{counted(landed.new_feedback, 'new piece')} of feedback of {landed.feedback} there"
    if landed.scores:
        yield "scores: " + ", ".join(
            f"{name} of {counted(count, 'run')}" for name, count in landed.scores.items()
        )
    for name, scale in landed.rescaled.items():
        yield f"{name} is declared {scale}, and recorded as its share of that, in 0 to 1"
    for name, count in landed.scales.items():
        if name not in landed.thumbs_by:
            yield f"{name} is a scale ({count}): if people gave it, --thumbs '{name}>=NUMBER' makes thumbs of it"
    if landed.tasks:
        yield (
            f"{counted(landed.new_tasks, 'new row')} of datasets of {landed.tasks} there, "
            f"{landed.answered_tasks} with the right answer: whet improve TARGET --data {store}"
        )
    for reason, count in landed.left_out.items():
        yield f"left out: {count} x {reason}"
    if holdings.unread:
        yield "fields that are not read: " + ", ".join(
            f"{name} ({count})" for name, count in holdings.unread.most_common(12)
        )
