"""`whet show`: the record of what agents did, what was released, and what proves it."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
import msgspec
from cyclopts import Parameter

from ..errors import InputError, NotFoundError
from ..types import Bundle, Trajectory
from .conversation import RunFilter, judgement, thumb_counts, transcript
from .named import judged, refuse_two_rewards
from .root import AtLeastOne, Print, Record, Reward, app, command, counted, existing, named_store, print_json
from .train_input import read_trajectories

if TYPE_CHECKING:
    from ..record.store import Store

Score = Annotated[
    str | None,
    Parameter(help="The score that is the reward. If omitted, the rewards of the steps, else the outcome."),
]

_capture = cyclopts.App(name="capture", help="An earlier name of whet show --trainable.", show=False)
app.command(_capture)


@_capture.command(name="check")
def check(
    *,
    data: Path | None = None,
    store: Path | None = None,
    score: Score = None,
    reward_function: Reward = None,
    json: Print = False,
) -> int:
    """Say of each recorded run whether it can be trained on, and if not, why.

    The same as whet show --trainable. Checks that calls, token ids and a reward were recorded, that each prompt extends
    the last one, and that the masks fit. Exits 1 if no run can be trained on.

    Parameters
    ----------
    data
        Trajectories, one JSON object per line.
    store
        Trajectories of this store instead.
    """
    from ..learn.training import capture

    refuse_two_rewards(score, reward_function)
    trajectories = read_trajectories(data, store)
    if reward_function is not None:
        trajectories, score, _ = judged(trajectories, reward_function)
    survey = capture.survey(trajectories, score=score)
    checks = [capture.check(trajectory, score=score) for trajectory in trajectories]
    if json:
        print_json(survey)
        for run in checks:
            row = msgspec.to_builtins(run) | {"trainable": run.trainable, "clonable": run.clonable}
            print_json(row)
    else:
        print("\n".join(survey.lines()))
        for run in checks:
            if run.reasons:
                print(f"{run.id}  {', '.join(run.reasons)}")
    return 0 if survey.trainable or survey.clonable else 1


@command("show")
def show(
    run: str | None = None,
    /,
    *,
    store: Annotated[
        Path | None, Parameter(env_var="WHET_STORE", help="The record: a file, such as runs.db.")
    ] = None,
    follow: bool = False,
    trainable: bool = False,
    data: Path | None = None,
    score: Score = None,
    reward_function: Reward = None,
    json: Print = False,
) -> int:
    """Print what a store holds: counts of each kind, what is live, and the history of releases.

    With RUN: that run as a conversation, with its tools, what people said of it, and its cost. With --follow: each run
    as it is recorded. With --trainable: which recorded runs can be trained on, and why the others cannot.

    Parameters
    ----------
    run
        Id of a run, trajectory or trace, as whet show trajectories prints it.
    follow
        Print each new run as a conversation as soon as it is recorded, until Ctrl-C; whet show trajectories --follow
        has filters, and a line for each.
    trainable
        Check each run instead: that calls, token ids and a reward were recorded, that each prompt extends the last one,
        and that the masks fit. Exits 1 if no run can be trained on.
    data
        With --trainable: trajectories of a file instead of a store, one JSON object per line.
    """
    if trainable:
        # WHET_STORE may name a store beside --data: the file is what was asked for.
        return check(
            data=data, store=None if data else store, score=score, reward_function=reward_function, json=json
        )
    if data or score or reward_function:
        raise InputError("--data, --score and --reward-function need --trainable")
    if follow:
        if run is not None:
            raise InputError("--follow waits for new runs: omit RUN, or --follow")
        return trajectories(store=named_store(store), follow=True, whole=True, json=json)
    if run is not None:
        return trajectories(store=named_store(store), run=run, json=json, whole=True)
    from ..record.store import Store
    from ..record.store.call_tally import counts
    from ..record.tracing.progress import read_progress

    with Store(existing(named_store(store))) as opened:
        live = opened.live()
        progress, unread = read_progress(opened)
        calls = counts(opened)
        holdings: dict[str, Any] = {
            "counts": opened.counts() | thumb_counts(opened.feedback()),
            "assembly": {
                "open": progress.open,
                "unassembled": progress.unassembled,
                "unread_spans": unread,
                "lag_seconds": round(progress.lag(), 3),
            },
            "live": live.ids if live is not None else {},
            "releases": [
                {
                    "id": release.id,
                    "at": release.at,
                    "bundle": release.bundle.ids,
                    "reason": release.reason,
                    "verdict": release.verdict,
                    "unproven": release.unproven,
                }
                for release in opened.history()
            ],
            "model_calls": None if calls is None else calls._asdict(),
        }
    if json:
        print_json(holdings)
        return 0
    for name, count in holdings["counts"].items():
        print(f"{name:32} {count:>10,}")
    for name, waiting in holdings["assembly"].items():
        if waiting:
            print(f"assembly: {name.replace('_', ' '):22} {waiting:>10,}")
    if calls is not None and calls.lost:
        print(f"{'model calls lost':32} {calls.lost:>10,}")
    if calls is not None and calls.open:
        print(f"{'model calls not recorded yet':32} {calls.open:>10,}  (lost, if no gateway runs)")
    for name, id in holdings["live"].items():
        print(f"live {name:27} {id}")
    for release in holdings["releases"]:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(release["at"]))
        proof = "unproven, " if release["unproven"] else ""
        print(f"released {day}: {proof}{release['reason']}")
    return 0


@app["show"].command
def trials(*, store: Record, json: Print = False) -> int:
    """Print what is on trial: each canary's share, evidence and next look.

    Computed from the record, by the same code that ramps canaries and takes them back inside whet serve.
    """
    from ..prove.watch import looks
    from ..record.store import Stage, Store

    with Store(existing(store)) as opened:
        canaries = looks(opened)
        shadows = [release for release in opened.on_trial() if release.stage is Stage.SHADOW]
    if json:
        for look in canaries:
            print_json(
                {
                    **msgspec.to_builtins(look.decision),
                    "trial": look.release.trial,
                    "share_now": look.release.share,
                    "unit": look.release.unit,
                    "units": look.units,
                    "mismatched": look.mismatched,
                }
            )
        return 0
    for look in canaries:
        print(look.sentence)
    for release in shadows:
        print(f"shadow {release.trial} of Bundle {release.candidate} for {release.share:.0%} of the traffic")
    if not canaries and not shadows:
        print("nothing is on trial; whet release BUNDLE --to canary begins one")
    return 0


@app["show"].command
def trajectories(
    *,
    store: Record,
    run: str | None = None,
    since: str | None = None,
    session: str | None = None,
    subject: Annotated[str | None, Parameter(name=("--subject", "--user"))] = None,
    up: bool = False,
    down: bool = False,
    unrated: bool = False,
    failing: bool = False,
    contains: str = "",
    limit: AtLeastOne | None = None,
    whole: bool = False,
    follow: bool = False,
    json: Print = False,
) -> int:
    """List the recorded runs of a store, in the order of recording.

    For example, what users did not like: whet show trajectories --store runs.db --down --whole

    Failures of the last hour, and those to come: whet show trajectories --store runs.db --failing --since 1h --follow

    Parameters
    ----------
    run
        Only this run, trajectory or trace.
    since
        Only runs that began then or later: 90s, 15m, 2h or 7d before now, a date, a date with a time (ISO 8601), or
        Unix seconds.
    session
        Only runs of this conversation.
    subject
        Only runs of this person.
    up
        Only runs that people liked last.
    down
        Only runs that people disliked last.
    unrated
        Only runs that nobody said anything about.
    failing
        Only runs that failed.
    contains
        Only runs with these words in the question, the answer or a comment.
    limit
        At most this many runs.
    whole
        Print each as a conversation.
    follow
        Go on with each run that is recorded from now on, until Ctrl-C. Works whether or not the server is running.
    json
        Print one JSON object per line: task, outcome, error, feedback and steps, with everything that was captured.
    """
    from ..record.store import Store
    from ..record.tracing.signals import hear

    chosen = RunFilter(up, down, unrated, failing, contains)
    begun = moment(since)
    wanted: dict[str, Any] = {"session": session, "subject": subject, "ids": None if run is None else [run]}
    printer = _Runs(whole, json)
    with Store(existing(store)) as opened:
        hear(opened)
        newest = opened.newest()
        # Without a filter the newest runs alone are few, and what was there before was not asked for.
        if not follow or since is not None or run is not None or limit is not None:
            runs = opened.trajectories(since=begun, upto=newest, limit=None if chosen else limit, **wanted)
            for trajectory in islice(filter(chosen, runs) if chosen else runs, limit):
                printer(trajectory)
        sys.stdout.flush()
        if follow:
            _follow(opened, newest, wanted, chosen, printer)
    if run is not None and not printer.count:
        raise NotFoundError(
            f"{store} holds no trajectory, run or trace {run!r}. whet show trajectories lists them."
        )
    if not printer.count and not follow:
        print(f"no run of {store} is like that: leave out a filter", file=sys.stderr)
    if printer.separate and not json and not whole:
        print(printer.separate, file=sys.stderr)
    return 0


POLL = 0.5
"""Seconds between two looks for new runs: each reads one number."""


def _follow(store: Store, newest: int, wanted: dict[str, Any], chosen: RunFilter, printer: _Runs) -> None:
    """Print what is recorded from now on, until Ctrl-C."""
    if sys.stderr.isatty():
        print("waiting for new runs; Ctrl-C ends", file=sys.stderr, flush=True)
    try:
        while True:
            time.sleep(POLL)
            # A number each time, so that what comes while this prints is neither lost nor printed twice.
            before, newest = newest, store.newest()
            if newest == before:
                continue
            for trajectory in store.trajectories(after=before, upto=newest, **wanted):
                if chosen(trajectory):
                    printer(trajectory)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return


@dataclass
class _Runs:
    """Prints runs, each as a line, a conversation or JSON."""

    whole: bool
    json: bool
    count: int = 0
    separate: str = ""
    """How to have runs instead of the first that holds several questions."""

    def __call__(self, trajectory: Trajectory) -> None:
        from ..record.tracing.dialects import form
        from ..record.transcript import how_to_separate

        self.count += 1
        if self.json:
            sys.stdout.write(msgspec.json.encode(form(trajectory)).decode() + "\n")
        elif self.whole:
            print("\n" * (self.count > 1) + "\n".join(transcript(trajectory)))
        else:
            print(_line(trajectory))
            self.separate = self.separate or how_to_separate(trajectory)


_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment(text: str | None) -> float | None:
    """A time as people write it, in Unix seconds.

    Raises:
        InputError: it is none.
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    if ago := _AGO.fullmatch(text.strip()):
        return time.time() - float(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InputError(
            f"--since {text!r} is not a time. Give 15m, 2h or 7d (before now), 2026-01-31, 2026-01-31T12:00:00 or Unix "
            "seconds."
        ) from None


def _line(trajectory: Trajectory) -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(trajectory.started))
    task = " ".join(trajectory.task.instruction.split()) or trajectory.task.id
    shown = task if len(task) <= 50 else task[:47] + "..."
    steps = counted(len(trajectory.steps), "step")
    error = trajectory.error
    why = "" if error is None else f"  ({' '.join(f'{error.type}: {error.message}'.split())[:80]})"
    return f"{started}  {trajectory.id:32}  {judgement(trajectory):20}  {steps:>9}  {shown}{why}"


@app["show"].command
def verdicts(*, store: Record, candidate: str | None = None, json: Print = False) -> int:
    """List the gate's verdicts, the newest last.

    Parameters
    ----------
    candidate
        Only verdicts on the Bundle with this id.
    """
    from ..prove.regimes import both_regimes
    from ..record.store import Store
    from ..record.store.findings import open_findings

    with Store(existing(store)) as opened:
        for verdict in opened.verdicts(candidate=candidate):
            if json:
                print_json({"id": verdict.id, **msgspec.to_builtins(verdict)})
                continue
            low, high = verdict.interval
            decided = "promote" if verdict.promote else "keep   "
            if verdict.promote and open_findings(opened.database, verdict.candidate):
                decided = "held   "
            print(
                f"{verdict.id} {decided} Bundle {verdict.candidate} over "
                f"{verdict.baseline or verdict.against}: {verdict.effect:+.3f} [{low:+.3f}, {high:+.3f}], "
                f"e-value {verdict.e_value:.3g}, {verdict.n} pairs"
            )
            if verdict.regimes:
                print(f"  {both_regimes(verdict.regimes, verdict.regime)}")
    return 0


@app["show"].command
def versions(
    version: str | None = None, /, *, store: Record, resource: str | None = None, json: Print = False
) -> int:
    """List the Versions of a store in the order of recording, or print one as a diff against its parent.

    Parameters
    ----------
    version
        The id of one Version, to print its diff.
    resource
        Only Versions of the resource of this name.
    """
    from ..record.diffs import diff
    from ..record.store import Store

    existing(store)
    if version is not None and resource is not None:
        raise InputError("an id names one Version: omit --resource")
    with Store(store) as opened:
        listed = [opened.version(version)] if version is not None else opened.versions(resource)
        live = opened.live()
        ids = set(live.ids.values()) if live is not None else set()
        for version_shown in listed:
            if json:
                print_json({**msgspec.to_builtins(version_shown), "live": version_shown.id in ids})
                continue
            mark = "live" if version_shown.id in ids else ""
            above = f"from {version_shown.parent}" if version_shown.parent else ""
            print(
                f"{version_shown.id} {mark:4} {version_shown.kind:8} {version_shown.resource:27} {above}".rstrip()
            )
            if version is not None:
                print(
                    diff(
                        Bundle(opened.versions(ids=[version_shown.parent]))
                        if version_shown.parent
                        else Bundle(),
                        Bundle([version_shown]),
                    )
                )
    return 0
