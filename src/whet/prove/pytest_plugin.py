"""pytest's plug-in: the tests of this run as per-task results, recorded, and compared with those of an earlier run.

    pytest --whet-record before.jsonl
    pytest --whet-baseline before.jsonl      # or a report that --junitxml wrote

A test that passes is worth 1, one that fails 0 (so is one that is expected to fail and does); the fixture `whet_score`
states another worth, and a group. A test whose fixture breaks says nothing about what it tests: an infrastructure
error. A skipped test has no result. Repeated runs of one test are averaged.

pytest loads this module in every run of every project where whet is installed: until one of its options is given it
imports nothing else and registers nothing. The exit code stays pytest's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..types import Verdict
    from .results import TaskResult

_STATED = pytest.StashKey[dict[str, Any]]()
_CARRIED = "whet_stated"
"""The attribute of a report that carries what a test stated: reports of xdist's workers keep it on their way."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("whet", "is this version better than an earlier one?")
    group.addoption(
        "--whet-record", metavar="FILE", help="write the result of each test to FILE, as JSON Lines"
    )
    group.addoption(
        "--whet-baseline",
        metavar="FILE",
        help="compare this run with FILE, and print the verdict: keep, drop or more",
    )
    group.addoption(
        "--whet-margin",
        metavar="NUMBER",
        type=float,
        default=0.0,
        help="0 (the default) asks for better; 0.02 for not worse by more than 0.02",
    )


def pytest_configure(config: pytest.Config) -> None:
    record, baseline = config.getoption("--whet-record"), config.getoption("--whet-baseline")
    if not record and not baseline:
        return
    config.pluginmanager.register(_Stating(), "whet-stating")
    # The workers of xdist run tests and report to the controller, which alone has all results.
    if not hasattr(config, "workerinput"):
        margin = config.getoption("--whet-margin")
        config.pluginmanager.register(_Results(config, record, baseline, margin), "whet-results")


@pytest.fixture
def whet_score(request: pytest.FixtureRequest) -> Callable[..., None]:
    """States what this test's result is worth, in place of 1 for passed and 0 for failed.

    `whet_score(0.7, group="mailbox-3", cost=0.002)`: a value from 0 to 1, the group that the test shares with others,
    and what it cost; each may be left out.
    """

    def state(value: float | None = None, *, group: str = "", cost: float | None = None) -> None:
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"whet_score({value}): a worth lies between 0 and 1")
        stated: dict[str, Any] = {} if value is None else {"success": float(value)}
        stated |= {"group": str(group)} if group else {}
        stated |= {} if cost is None else {"cost": float(cost)}
        request.node.stash.setdefault(_STATED, {}).update(stated)

    return state


class _Stating:
    """Puts what a test stated into its report, where the test runs."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "call":
            setattr(report, _CARRIED, item.stash.get(_STATED, {}))
        return report


class _Results:
    """The results of this run, where all reports come together."""

    def __init__(
        self, config: pytest.Config, record: str | None, baseline: str | None, margin: float
    ) -> None:
        folder = config.invocation_params.dir
        # Without a file of settings pytest takes for its root what all existing paths of the command line share, that
        # of the baseline among them: the names of tests would begin elsewhere than in the run that it was written by.
        guessed = config.inipath is None and config.getoption("rootdir") is None
        self._root, self._from = config.rootpath, folder if guessed else config.rootpath
        self._record = folder / record if record else None
        self._baseline = folder / baseline if baseline else None
        self._margin = margin
        self._rows: list[dict[str, Any]] = []
        self._skipped: set[str] = set()
        self._written = ""
        if self._baseline is not None and not self._baseline.is_file():
            raise pytest.UsageError(
                f"--whet-baseline: there is no file at {self._baseline}; --whet-record writes one"
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # One that is expected to fail and does is reported as skipped, too.
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.add(self._name(report))
        elif report.when == "call":
            stated = getattr(report, _CARRIED, {})
            self._rows.append({"task": self._name(report), "success": float(report.passed), **stated})
        elif report.when == "setup" and report.failed:
            self._rows.append({"task": self._name(report), "outcome": "infrastructure_error"})

    def _name(self, report: pytest.TestReport) -> str:
        """The id of a test, whose path begins in the folder that pytest was called in, or where the settings lie."""
        path, colons, name = report.nodeid.partition("::")
        return Path(os.path.relpath(self._root / path, self._from)).as_posix() + colons + name

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._record is None or session.config.getoption("--collect-only"):
            return
        try:
            self._record.parent.mkdir(parents=True, exist_ok=True)
            part = self._record.with_name(f"{self._record.name}.{os.getpid()}.part")
            part.write_text("".join(json.dumps(row) + "\n" for row in self._rows), encoding="utf-8")
            part.replace(self._record)
        except OSError as error:
            self._written = (
                f"error: the results could not be written to {self._record}: {error.strerror or error}"
            )
        else:
            self._written = f"{len(self._rows)} results written to {self._record}"

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        from ..errors import WhetError

        if config.getoption("--collect-only"):
            return
        terminalreporter.section("whet")
        if self._baseline is not None:
            try:
                terminalreporter.write_line(self._told(self._baseline))
            except WhetError as error:
                terminalreporter.write_line(f"error: {error}", red=True)
        if self._written:
            terminalreporter.write_line(self._written)

    def _told(self, baseline: Path) -> str:
        from ..escapes import neutral
        from .answers import answer, told

        verdict = self._verdict(baseline)
        return "\n".join(map(neutral, told(verdict, answer(verdict, candidate="this run")).splitlines()))

    def _verdict(self, baseline: Path) -> Verdict:
        """On the tests that both runs had; one that only this run skipped counts against it."""
        from ..errors import InputError
        from .formats.outcomes import ReadAs, of_rows, read_sides
        from .verdict import compare_outcomes

        (old,) = read_sides([baseline], ReadAs())
        known = {result.task for result in old.results}
        rows, skipped = self._rows, self._skipped
        if not known & ({row["task"] for row in rows} | skipped):
            # A report of pytest's own (--junitxml) has other names for the same tests.
            rows = [{**row, "task": _in_junit(row["task"])} for row in rows]
            skipped = {_in_junit(name) for name in skipped}
            if known & ({row["task"] for row in rows} | skipped):
                groups = {row["task"]: row.get("group", "") for row in rows}
                results = [replace(one, group=groups.get(one.task) or one.group) for one in old.results]
                old = replace(old, results=results)  # such a report says nothing of groups
            else:
                rows, skipped = self._rows, self._skipped
        new = of_rows(rows, "this run")
        ran = {result.task for result in new.results} | skipped
        notes = list(new.notes)
        if fresh := ran - known - skipped:
            notes.append(f"{len(fresh)} tests of this run have no baseline: left out.")
        if known and not ran & known:
            raise InputError(
                f"none of the {len(ran)} tests of this run is in {baseline}, which has {min(known)!r} where this run "
                f"has {min(ran, default='none')!r}: record and compare from the same folder"
            )
        if unrun := known - ran:
            notes.append(f"{len(unrun)} tests of the baseline were not selected now: left out.")
        return compare_outcomes(
            replace(old, results=[result for result in old.results if result.task in ran]),
            replace(
                new,
                metric=old.metric,
                # By the baseline's name of the metric: a report of JUnit says `passed`.
                results=[_renamed(result, old.metric) for result in new.results if result.task in known],
                absent=len(skipped & known),
                notes=notes,
            ),
            margin=self._margin,
        )


def _in_junit(name: str) -> str:
    """A test's id as `--junitxml` writes it: class and name, the class with the module's path before it."""
    path, *inner = name.partition("[")[0].split("::")
    parameters = name[len(name.partition("[")[0]) :]
    module = path.removesuffix(".py").replace("/", ".")
    return ".".join([module, *inner[:-1]]) + "::" + "".join(inner[-1:]) + parameters


def _renamed(result: TaskResult, metric: str) -> TaskResult:
    scores = {metric if name == "success" else name: value for name, value in result.scores.items()}
    return replace(result, scores=scores)
