"""`whet issues`: where an agent fails more than elsewhere, which part is weak, and where each issue stands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
import msgspec
from cyclopts import Parameter

from .named import known_score
from .root import AtLeastOne, Print, Record, app, counted, existing, listed, print_json
from .show import moment

if TYPE_CHECKING:
    from ..ship.issues import AgentIssue, IssueMove

IssueId = Annotated[str, Parameter(help="The id of an issue, as whet issues lists it.")]

app.command(
    cyclopts.App(
        help="Find where the agent fails more than elsewhere, and which part of it is weak.",
        **listed("issues"),
    )
)
_issues = app["issues"]


@_issues.default
def issues(
    *,
    store: Record,
    score: str | None = None,
    since: str | None = None,
    newest: AtLeastOne = 100_000,
    look: Annotated[bool, Parameter(negative="--no-look")] = True,
    all: bool = False,
    json: Print = False,
) -> int:
    """Look at the newest runs, and list the issues of the agent: whet issues --store runs.db

    An issue is a part of the traffic, told by a tool, an error, an argument, a model, a version or words of what is
    asked, in which runs fail more often than other runs of the same people, beyond chance and after having looked at
    many parts. What fails is told by people's word, a score or an outcome, errors, guardrails, circles, time and
    tokens. Bursts that are over are closed at once. A closed or shipped issue that fails again is reopened. Exits 1 if
    an issue stands.

    Parameters
    ----------
    score
        A score in [0, 1] that says which runs failed: those below a half. If omitted, their outcomes.
    since
        Only runs that began then or later: Unix seconds, a date, or a date with a time (ISO 8601).
    newest
        So many of the newest runs are looked at.
    look
        Look at the record first; --no-look lists what is known.
    all
        List the closed ones too.
    """
    from ..record.store import Store
    from ..ship.issues import find_issues, standing

    with Store(existing(store)) as opened:
        began = time.perf_counter()
        runs = min(newest, opened.count("trajectories"))
        known_score(opened, score if look else None)
        options: dict[str, Any] = {"score": score, "since": moment(since), "newest": newest}
        known = find_issues(opened, **options) if look else opened.issues.read()
        seconds = time.perf_counter() - began
    open_issues = standing(known)
    shown = [*open_issues, *(issue for issue in known if issue not in open_issues)] if all else open_issues
    if json:
        print_json(
            {"issues": [plain(issue) for issue in shown], "runs": runs, "seconds": seconds if look else None}
        )
        return int(bool(open_issues))
    for issue in shown:
        print("\n".join(lines(issue)))
    if look:
        print(
            f"looked at {counted(runs, 'run')} in {seconds:.1f} s ({runs / max(seconds, 1e-9):,.0f} a second)"
        )
    if not shown:
        closed = f"; {counted(len(known), 'issue')} closed: --all" if known else ""
        print(f"no defect: no part of the traffic fails more than the rest, beyond chance{closed}")
    return int(bool(open_issues))


@_issues.command(name="show")
def show(id: IssueId, /, *, store: Record, json: Print = False) -> int:
    """Show one issue: what it is, what speaks for the part it is put down to, the runs, and all that became of it."""
    from ..record.store import Store

    with Store(existing(store)) as opened:
        issue, history = opened.issues.get(id), opened.issues.history(id)
    if json:
        print_json({**plain(issue), "history": [msgspec.to_builtins(move) for move in history]})
        return 0
    print("\n".join([*lines(issue), *_details(issue, history)]))
    return 0


@_issues.command(name="close")
def close(id: IssueId, /, *, store: Record, reason: str, json: Print = False) -> int:
    """Close an issue: it is repaired, or none. It is reopened where runs from then on fail as before.

    Parameters
    ----------
    reason
        Why, for the log.
    """
    return _moved(id, "closed", store, reason, json=json)


@_issues.command(name="move")
def move(id: IssueId, status: str, /, *, store: Record, reason: str, json: Print = False) -> int:
    """Say where an issue stands now: diagnosed, proposed, proving, shipped, closed or reopened.

    Parameters
    ----------
    status
        Where it stands. Not every one follows from every other.
    reason
        Why, for the log.
    """
    return _moved(id, status, store, reason, json=json)


def _moved(id: str, status: str, store: Record, reason: str, *, json: bool) -> int:
    from ..record.store import Store

    with Store(existing(store)) as opened:
        issue = opened.issues.move(id, status, reason=reason)
    if json:
        print_json(plain(issue))
    else:
        print("\n".join(lines(issue)))
    return 0


def plain(issue: AgentIssue) -> dict[str, object]:
    """An issue as JSON has it."""
    return dict(msgspec.to_builtins(issue))


def lines(issue: AgentIssue) -> Iterator[str]:
    """An issue as text."""
    yield f"{issue.id} {issue.status}: {issue.name}"
    part = f"{issue.component} {issue.resource}".strip()
    yield (
        f"    {part} (certainty {issue.certainty:.1f}); {counted(issue.affected, 'failure')}, "
        f"{'1 person' if issue.people == 1 else f'{issue.people:,} people'}, {issue.traffic:.1%} of the traffic; "
        f"{_day(issue.first_seen)} to {_day(issue.last_seen)}"
    )
    yield f"    {issue.reason}"


def _details(issue: AgentIssue, history: list[IssueMove]) -> Iterator[str]:
    yield from (f"    because {sentence}" for sentence in issue.because)
    if len(issue.marks) > 1:
        yield f"    nearly the same runs: {'; '.join(issue.marks[1:6])}"
    for name, version in issue.versions.items():
        yield f"    all under the Version {version} of {name}"
    yield f"    runs: {', '.join(issue.runs[:5])} (whet show trajectories --run ID)"
    for entry in history:
        yield f"    {_day(entry.at)} {entry.status}: {entry.reason}"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
