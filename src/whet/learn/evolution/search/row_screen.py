"""Screens of a function of a repository on its rows: traced, answered side by side, and compared outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher

import msgspec
from msgspec import UNSET

from ....types import Bundle, Json, Task
from ...datasets.callee import RUNNER, staged
from ..agents.outside import Comparer, Targets
from ..editing.corrections import Corrections, WrongAnswer
from ..editing.program import Program
from .population import Judged
from .screening import (
    FAILING,
    PASSING,
    TRACE_SECONDS,
    TRACED,
    CodeLine,
    Placed,
    Screen,
    Screened,
    Spectrum,
    Traced,
    limit_of,
    ochiai,
    placed,
    spread,
    value_of_answer,
    version,
    width_of,
    words_of,
)

_FINALISTS = 3
_COMPARED = 120
"""Characters of two answers that are compared."""


class RowScreen(Screen):
    """Versions of what one function's rows are about.

    Args:
        env: calls the function.
        comparer: of its answers.
        name: of the function.
        bundle_of: Program → the Bundle that is run.
    """

    def __init__(
        self, env: Targets, comparer: Comparer, name: str, bundle_of: Callable[[Program], Bundle]
    ) -> None:
        pool = env.ways[name].pool
        super().__init__(pool, pool.sandbox.limits.wall_seconds)
        self.env, self.comparer, self.name, self.bundle_of = env, comparer, name, bundle_of

    def _files(self, program: Program) -> dict[str, str | bytes]:
        """The staged files of a program, with the pieces that it lacks as they are."""
        target = self.env.targets[self.name]
        whole = self.env.form.program(self.bundle_of(program))
        return staged(target.build(whole), target.entry)

    def _calls(self, tasks: Sequence[Task]) -> list[Json]:
        target = self.env.targets[self.name]
        return [target.arguments(task.initial_state["input"]) for task in tasks]

    async def _worth(self, task: Task, told: str) -> float:
        """The score of an answer, 0 where there is none."""
        answered, answer = value_of_answer(told)
        score = (await self.comparer.score(task, answer))[0] if answered else 0.0
        return score or 0.0

    async def spectrum(self, judged: Judged, tasks: Sequence[Task]) -> Spectrum | None:
        """The spectrum of a member on tasks; None where its pieces do not stand in a file as they are."""
        program = judged.program
        files = self._files(program)
        places = placed(program, files)
        if not places:
            return None
        failing = [task for task in tasks if judged.instances.get(task.id, 0.0) < 1.0]
        passing = [task for task in tasks if judged.instances.get(task.id, 0.0) >= 1.0]
        traced = [*spread(failing, TRACED), *spread(passing, TRACED)]
        known = [judged.instances.get(task.id, 0.0) >= 1.0 for task in traced]
        watched = sorted({place.path for place in places.values()})
        reports: list[Traced] = []
        while len(reports) < len(traced):
            calls = self._calls(traced[len(reports) :])
            told = await self.asked(files, "lines", RUNNER, watched, calls, TRACE_SECONDS, self.enough)
            reports += [Traced.read(report) for report in told] or [Traced()]
        return await self._suspected(program, places, traced, reports, known, (len(failing), len(passing)))

    async def _suspected(
        self,
        program: Program,
        places: Mapping[str, Placed],
        traced: Sequence[Task],
        reports: Sequence[Traced],
        known: Sequence[bool],
        counts: tuple[int, int],
    ) -> Spectrum:
        # Of these calls alone: where an earlier one hung, those after it were not made when it was judged.
        scores = [
            await self._worth(task, report.answer) for task, report in zip(traced, reports, strict=True)
        ]
        ran = [
            frozenset(
                CodeLine(part, number - place.shift)
                for part, place in places.items()
                for number in report.lines.get(place.path, ())
            )
            for report in reports
        ]
        fails = [score < 1.0 for score in scores]
        hangs = [report.hung for report in reports]
        blame = ochiai(
            [lines for lines, failed in zip(ran, fails, strict=True) if failed],
            [lines for lines, failed in zip(ran, fails, strict=True) if not failed],
        )
        wrong = [index for index, failed in enumerate(fails) if failed]
        right = [index for index, failed in enumerate(fails) if not failed]
        # A version that hangs as its origin does ends there: what it answers on other rows is asked for before.
        wrong = sorted(spread(wrong, FAILING), key=lambda index: hangs[index])
        chosen = [*wrong, *spread(right, PASSING)]
        steps = sum(reports[index].steps for index in chosen if not hangs[index])
        of_wrong, of_right = len(wrong), len(chosen) - len(wrong)
        # Answered in time without the trace: calls are too long for a screen, and not without an end.
        slow = any(hangs[index] and known[index] for index in range(len(traced)))
        weights = [
            max(1.0, counts[0] / of_wrong if fails[index] else counts[1] / of_right) for index in chosen
        ]
        return Spectrum(
            program,
            blame,
            width_of(steps) if wrong and not slow else 1,
            limit_of([report.cpu for report, hung in zip(reports, hangs, strict=True) if not hung]),
            [traced[index] for index in chosen],
            [reports[index].answer for index in chosen],
            [scores[index] for index in chosen],
            weights,
            self._corrections([(traced[index], reports[index].answer) for index in wrong]),
            _FINALISTS,
        )

    def _corrections(self, failing: Sequence[tuple[Task, str]]) -> Corrections:
        rows: list[WrongAnswer] = []
        for task, told in failing:
            answered, answer = value_of_answer(told)
            rows.append(WrongAnswer(task.initial_state["input"], answer if answered else UNSET, task.answer))
        return Corrections(words_of([task for task, _ in failing]), rows)

    async def screened(self, spectrum: Spectrum, programs: Sequence[Program]) -> list[Screened]:
        """Its versions on the rows of a spectrum."""
        files = self._files(spectrum.program)
        places = placed(spectrum.program, files)
        assert places is not None
        versions = [version(program, places, files) for program in programs]
        calls = self._calls(spectrum.rows)
        reports = await self.each(files, "answers", [RUNNER], versions, [calls, spectrum.seconds])
        return [await self._compared(spectrum, answers) for answers in reports]

    async def _compared(self, spectrum: Spectrum, answers: Sequence[str]) -> Screened:
        """A version's answers beside those of its origin; rows that it was not asked any more count for nothing."""
        gain, lost, nearer, differs = 0.0, False, 0.0, False
        rows = zip(spectrum.rows, spectrum.answers, spectrum.scores, spectrum.weights, strict=True)
        for (task, before, score, weight), answer in zip(rows, answers, strict=False):
            if answer == before:
                continue
            change = await self._worth(task, answer) - score
            gain += weight * change
            lost = lost or change < 0.0
            if score < 1.0:
                differs = True
                nearer += weight * (_likeness(answer, task.answer) - _likeness(before, task.answer))
        whole = len(answers) == len(spectrum.rows)
        half = differs and not lost and gain <= 0.0 and whole
        return Screened(max(0.0, gain), half, nearer if half else 0.0)


def _likeness(told: str, wanted: Json) -> float:
    """Of an answer and the right one, from 0 to 1, by their texts; 0 where there is none."""
    answered, answer = value_of_answer(told)
    if not answered:
        return 0.0
    a, b = (msgspec.json.encode(value).decode("utf-8", "replace")[:_COMPARED] for value in (answer, wanted))
    return 0.1 + 0.9 * float(SequenceMatcher(None, a, b, autojunk=False).ratio())
