"""`whet log` and `whet diff`: what was released, where a Version came from, and what differs between two of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from heapq import merge
from typing import TYPE_CHECKING, Any

from ..types import Bundle
from .root import AtLeastOne, Print, Record, command, existing, print_json

if TYPE_CHECKING:
    from ..record.store import Release, Store
    from ..types import Verdict


@command("log")
def log(
    version: str | None = None, /, *, store: Record, last: AtLeastOne | None = None, json: Print = False
) -> int:
    """List what was judged and released, oldest first, and what stands now. With VERSION: where that came from.

    Of a Version it prints the data, reward and evaluator, experiment, seed and cost that made it, the Verdicts on it
    and its releases.

    Parameters
    ----------
    version
        The id of a Version, or of something that holds some: a Bundle, a Verdict, a release, or live.
    last
        Only so many of the newest releases.
    """
    from ..record.store import Store, release_of
    from ..ship.provenance import provenance_of

    with Store(existing(store)) as opened:
        if version is not None:
            for held in release_of(opened, version).values():
                provenance = provenance_of(opened, held.id)
                if json:
                    releases = [_entry(release) for release in provenance.releases]
                    print_json({**asdict(replace(provenance, releases=())), "releases": releases})
                else:
                    print("\n".join(provenance.lines()))
            return 0
        if json:
            for release in opened.release_log(last=last):
                print_json(_entry(release))
            return 0
        for line in _lines(opened, last):
            print(line)
    return 0


@command("diff")
def diff(a: str, b: str, /, *, store: Record, json: Print = False) -> int:
    """Print what differs between two states of the agent: prompts, code and values, as a unified diff.

    A release, live and live~1 (what was live before) are compared whole. A Bundle or a Version is what would run if it
    were released now.

    Parameters
    ----------
    a
        The id of a Bundle, Version, Verdict or release, or live, or live~1.
    b
        The other one.
    """
    from ..record.diffs import changed
    from ..record.diffs import diff as differences
    from ..record.store import Store
    from ..record.store.ids import whole_of

    with Store(existing(store)) as opened:
        before, after = whole_of(opened, a), whole_of(opened, b)
    text = differences(before, after)
    if json:
        print_json({"changed": changed(before, after), "diff": text})
        return 0
    print(text or "nothing differs")
    return 0


def _entry(release: Release) -> dict[str, Any]:
    fields = asdict(replace(release, bundle=Bundle()))
    return {**fields, "bundle": release.bundle.id, "versions": release.bundle.ids}


def _lines(store: Store, last: int | None) -> Iterator[str]:
    """The log with the Verdicts that fall between its entries, then what stands."""
    releases = store.release_log(last=last)
    live = store.history(last=1)
    trials = store.on_trial()
    standing = {entry.id for entry in (*live, *trials)}
    released = [(release.at, _line(release, release.id in standing)) for release in releases]
    judged = [(at, _judged_line(verdict, experiment, at)) for verdict, experiment, at in _judged(store)]
    if last is not None:
        judged = [entry for entry in judged if releases and entry[0] >= releases[0].at]
    yield from (line for _, line in merge(_onward(judged), _onward(released), key=lambda entry: entry[0]))
    for name, id in (live[0].bundle.ids if live else {}).items():
        yield f"live {name:27} {id}"
    if not live or not live[0].bundle:
        yield "nothing is live: the agent is as it came"


def _judged(store: Store) -> Iterator[tuple[Verdict, str, float]]:
    """The Verdicts in the order of recording, each with its experiment and time."""
    rows = {
        id: (experiment, at)
        for id, experiment, at in store.database.rows("SELECT id, experiment, at FROM verdicts")
    }
    for verdict in store.verdicts():
        if verdict.id in rows:
            yield (verdict, *rows[verdict.id])


def _onward(entries: Iterable[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Entries of one log at times that never go back, as a clock that was set does: the log's order is the true one."""
    latest = 0.0
    for at, line in entries:
        latest = max(latest, at)
        yield latest, line


def _line(release: Release, stands: bool) -> str:
    share = f" {release.share:g} by {release.unit}" if release.stage == "canary" else ""
    proof = {"live": True, "canary": True}.get(release.stage, False)
    proven = (
        (f" on {release.verdict}" if release.verdict else " unproven" * release.unproven) if proof else ""
    )
    mark = "*" if stands else " "
    return (
        f"{_day(release.at)} {mark} {release.id} {release.stage.value + share:22} {release.candidate}{proven}: "
        f"{release.reason}"
    )


def _judged_line(verdict: Verdict, experiment: str, at: float) -> str:
    low, high = verdict.interval
    stage = "gated" if verdict.promote else "draft (not promoted)"
    if verdict.promote and not verdict.releasable:
        stage = "held back (a finding)"
    return (
        f"{_day(at)}   {verdict.id} {stage:22} {verdict.candidate} {verdict.effect:+.3f} [{low:+.3f}, {high:+.3f}]"
        f"{f', experiment {experiment}' if experiment else ''}"
    )


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
