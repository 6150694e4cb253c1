"""`whet report`: what recorded runs came to and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from ..errors import InputError, NotFoundError
from ..stats import wilson
from .named import broken, named_rewards, plain_rewards
from .root import Print, command, counted, existing, named_store, print_json
from .show import moment
from .train_input import read_trajectories

if TYPE_CHECKING:
    from ..judge import Reward
    from ..prove.report import Report
    from ..types import Trajectory


@command("report")
def report(
    *,
    store: Annotated[
        Path | None, Parameter(env_var="WHET_STORE", help="The record: a file, such as runs.db.")
    ] = None,
    data: Path | None = None,
    version: str | None = None,
    versus: str | None = None,
    since: str | None = None,
    session: str | None = None,
    subject: str | None = None,
    experiment: str | None = None,
    score: str | None = None,
    reward: tuple[str, ...] = (),
    sweep: tuple[str, str] | None = None,
    drift: bool = False,
    prices: Path | None = None,
    json: Print = False,
) -> int:
    """Report what runs came to and what they cost: success, thumbs, scores, steps, tokens, time and dollars.

    What searches, gates and baselines tried is left out where there is anything else; --experiment reports on it.

    The interval of the success rate is Wilson's 95 % one. With --versus a second column beside it, and the change of
    the error rate; the two are of different tasks, so this proves nothing: whet gate does.

    Parameters
    ----------
    data
        Trajectories of a file instead of a store, one JSON object per line.
    version
        Only runs under the Version with this id, or under this Version of a resource, as NAME=ID.
    versus
        Another Version, to compare with.
    since
        Only runs that began then or later: Unix seconds, a date, or a date with a time (ISO 8601).
    session
        Only runs of this conversation.
    subject
        Only runs of this person.
    experiment
        Only rollouts of this experiment.
    score
        A score in [0, 1] that says which runs are successes: those from a half on. If omitted, their outcomes.
    reward
        A reward to score the runs by now, in the place of the scores that were recorded under its name: a built-in
        one, such as exact, or module:function. May be repeated. whet score records them.
    sweep
        Two rewards or recorded scores, of the environment and of alignment: which Versions' runs each mixture of the
        two would choose, from alignment alone to the environment alone, and which no other Version beats in both.
    drift
        What drifted in the inputs, tools, scores, costs and times of the runs since the last release, or since --since:
        the first 400 are the reference.
    prices
        A file of prices in dollars per million tokens: {"MODEL": {"prompt": 0.15, "output": 0.6}}; it goes
        before the file that $WHET_PRICES names, and that before the public list prices that whet comes with. Dollars
        that were recorded with a call are kept.
    """
    from ..judge.scoring import current
    from ..models.prices import known_prices
    from ..prove.report import relative_errors
    from ..prove.report import report as report_on

    known = known_prices(prices)
    left_out = Counter[str]()
    rewards = plain_rewards(reward)
    picked = {"since": moment(since), "session": session, "subject": subject, "experiment": experiment}

    def runs(id: str | None) -> Iterator[Trajectory]:
        for run in current(_runs(store, data, picked, left_out), rewards):
            if id is None or _under(run, id):
                yield run

    if drift:
        return _drifted(store, moment(since), json)
    if sweep is not None:
        return _swept(runs(version), sweep, json)
    ours = report_on(runs(version), known, score=score)
    if not ours.runs:
        raise NotFoundError(_nothing(version))
    if score is not None and score not in ours.scores:
        there = ", ".join(sorted(ours.scores)) or "none: whet score gives them"
        raise NotFoundError(
            f"none of these {counted(ours.runs, 'run')} has a score {score!r}; their scores are {there}"
        )
    theirs = None if versus is None else report_on(runs(versus), known, score=score)
    if theirs is not None and not theirs.runs:
        raise NotFoundError(_nothing(versus))
    change = None if theirs is None else relative_errors(ours, theirs)
    if json:
        print_json(
            {
                "report": plain(ours),
                "versus": None if theirs is None else plain(theirs),
                "relative_errors": None if change is None else {"change": change[0], "interval": change[1]},
            }
        )
        return 0
    if theirs is not None:
        print(f"{'':26}{(version or 'all runs')[:32]:>34}{(versus or '')[:32]:>34}")
    for line in table([ours] if theirs is None else [ours, theirs]):
        print(line)
    if left_out:
        names = ", ".join(sorted(left_out)[:3]) + (", ..." if len(left_out) > 3 else "")
        count = counted(left_out.total(), "run")
        print(f"{count} of experiments left out ({names}); --experiment NAME reports on one")
    if change is not None:
        low, high = change[1]
        print(
            f"errors: {change[0]:+.0%} [{low:+.0%}, {high:+.0%}] against {versus}, on other tasks; "
            "whet gate proves which is better"
        )
    return 0


def _drifted(store: Path | None, since: float | None, json: bool) -> int:
    from ..judge.drift import drift, windows
    from ..record.store import Store

    with Store(existing(named_store(store))) as opened:
        reference, current = windows(opened, since=since)
    features = drift(reference, current)
    if json:
        for feature in features:
            print_json(feature)
        return 0
    print(f"{counted(len(current), 'run')} against {len(reference):,} before them")
    for feature in features:
        print(feature.sentence)
    if not features:
        print("too few runs to say anything of: it takes 30 with a feature before, and some after")
    return 0


def _swept(runs: Iterator[Trajectory], names: tuple[str, str], json: bool) -> int:
    from ..judge.blend import sweep_of, values

    environment, alignment = map(_reward_or_score, names)
    pairs: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        ids = ", ".join(f"{name}={id}" for name, id in sorted(run.versions.items())) or "as it came"
        own = pairs.setdefault(ids, [])
        if (both := values(run, environment, alignment)) is not None:
            own.append(both)
    judged = {name: own for name, own in pairs.items() if own}
    if not judged:
        raise InputError(
            f"no run has both {names[0]} and {names[1]}: name built-in rewards, module:function, or scores that are "
            "recorded (whet score, whet show trajectories)"
        )
    swept = sweep_of(judged)
    if json:
        print_json(swept)
    else:
        print("\n".join(swept.lines))
    return 0


def _reward_or_score(name: str) -> Reward:
    """What a run gets by a plain reward now; of a judge and any other name the score that is recorded."""
    from ..judge.base import is_async
    from ..judge.blend import recorded
    from ..learn.plugins import announced

    if ":" in name:
        return plain_rewards([name])[0]
    if name in announced("whet.rewards") and not is_async(reward := named_rewards([name])[0]):
        return reward
    return recorded(name)


def table(columns: list[Report]) -> Iterator[str]:
    """Reports side by side, line by line."""
    for name, *cells in _rows(columns):
        yield f"{name:26}" + "".join(f"{cell:>34}" for cell in cells)
    for column in columns:
        for said, count in column.errors.items():
            yield f"{counted(count, 'run')} ended by {said}"
        for name, score in column.scores.items():
            if score.broke:
                yield f"score {name}: {broken(score.broke, score.n, score.broken_by)}"
        for name, before in column.earlier.items():
            count = sum(mean.n + mean.missing for mean in before)
            yield (
                f"score {name} is that of version {column.scores[name].version or '(none)'}; {counted(count, 'run')} "
                f"have a score of an earlier one: whet score --reward {name} scores them anew"
            )
    for column in columns:
        if column.uncounted:
            yield (
                f"{counted(column.uncounted, 'model call')} of {column.model_calls:,} do not say how many tokens they "
                "took: what they cost is unknown"
            )
    for model in sorted({model for column in columns for model in column.unpriced}):
        yield f"no price for {model}: give --prices FILE, or name one in WHET_PRICES, to know what it costs"


def _nothing(id: str | None) -> str:
    if id is None:
        return "no run fits: omit --since, --session, --subject or --experiment"
    return f"no run was recorded under the Version {id!r}; whet show versions lists them"


def _runs(
    store: Path | None, data: Path | None, picked: Mapping[str, Any], left_out: Counter[str]
) -> Iterator[Trajectory]:
    """Runs of a file or a store, one after another: a record may be larger than memory.

    Args:
        left_out: gets the experiments whose runs are left out, with their number.

    Raises:
        InputError: a file was given together with what only a store can look for.
    """
    if data is not None:
        if any(value is not None for value in picked.values()):
            raise InputError(
                "--since, --session, --subject and --experiment look in a --store, not in --data"
            )
        yield from read_trajectories(data, None)
        return
    from ..record.store import Store

    with Store(existing(named_store(store))) as opened:
        tried = opened.experiments() if picked["experiment"] is None else {}
        # A record of nothing but a baseline or a search is what is asked about.
        served = bool(tried) and sum(tried.values()) < opened.count("trajectories")
        left_out.update(tried if served and not left_out else {})
        yield from opened.trajectories(**picked, served=served)


def _under(run: Trajectory, id: str) -> bool:
    name, equals, version = id.partition("=")
    return run.versions.get(name) == version if equals else id in run.versions.values()


def plain(column: Report) -> dict[str, Any]:
    """A report as JSON has it."""
    fields = msgspec.to_builtins(column)
    return {**fields, "rate": column.rate, "dollars_per_thousand": column.per_thousand}


def _rows(columns: list[Report]) -> Iterator[tuple[str, ...]]:
    """The lines of the table: a name, then a cell for each column."""

    def row(name: str, cell: Any) -> tuple[str, ...]:
        return (name, *(cell(column) for column in columns))

    yield row("runs", lambda one: f"{one.runs:,}")
    yield row("  judged", lambda one: f"{one.judged:,}")
    yield row("success", _success)
    for outcome in sorted({name for one in columns for name in one.outcomes} - {"success"}):
        yield row(
            f"  {outcome.replace('_', ' ')}", lambda one, name=outcome: f"{one.outcomes.get(name, 0):,}"
        )
    for fault in sorted({name for one in columns for name in one.faults}):
        yield row(f"  failed by the {fault}", lambda one, name=fault: f"{one.faults.get(name, 0):,}")
    if any(one.thumbs_up or one.thumbs_down for one in columns):
        yield row("thumbs", _thumbs)
    for score in sorted({name for one in columns for name in one.scores}):
        yield row(f"score {score}", lambda one, name=score: _score(one, name))
    yield row("steps a run", lambda one: f"{one.steps:.1f}")
    yield row("model calls", lambda one: f"{one.model_calls:,}{_each(one, one.model_calls)}")
    yield row("tool calls", lambda one: f"{one.tool_calls:,}{_each(one, one.tool_calls)}")
    yield row("tokens in", lambda one: _tokens(one, one.prompt_tokens))
    yield row("tokens out", lambda one: _tokens(one, one.output_tokens))
    yield row("seconds, p50 and p95", _seconds)
    yield row("dollars per 1,000 runs", lambda one: _dollars(one.per_thousand))
    yield row(
        "dollars a success",
        lambda one: _dollars(None if one.dollars is None else one.per_success(one.dollars)),
    )


def _success(one: Report) -> str:
    if one.rate is None:
        return "unknown: nothing was judged"
    low, high = one.interval
    return f"{one.rate:.1%} [{low:.1%}, {high:.1%}]"


def _thumbs(one: Report) -> str:
    count = one.thumbs_up + one.thumbs_down
    low, high = wilson(one.thumbs_up, count)
    share = f" [{low:.0%}, {high:.0%}] up" if count else ""
    return f"{one.thumbs_up:,} up, {one.thumbs_down:,} down{share}"


def _score(one: Report, name: str) -> str:
    score = one.scores.get(name)
    if score is None or not score.n:
        return "none"
    missing = f", {score.missing:,} missing" if score.missing else ""
    return f"{score.mean:.3f} of {counted(score.n, 'run')}{missing}"


def _each(one: Report, amount: int) -> str:
    each = one.per_success(amount)
    return "" if each is None else f", {each:,.1f} a success"


def _tokens(one: Report, amount: int) -> str:
    if one.uncounted >= one.model_calls > 0:
        return "unknown"
    least = "at least " if one.uncounted else ""
    return f"{least}{amount:,}{'' if one.uncounted else _each(one, amount)}"


def _seconds(one: Report) -> str:
    return "unknown" if one.seconds is None else f"{one.seconds[0]:,.2f}, {one.seconds[1]:,.2f}"


def _dollars(amount: float | None) -> str:
    return "unknown" if amount is None else f"${amount:,.4f}"
