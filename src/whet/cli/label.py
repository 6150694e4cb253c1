"""`whet label`: recorded runs shown one by one in the terminal, and judged with a key."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .conversation import RunFilter, rating, transcript
from .root import AtLeastOne, BaseUrl, ModelName, Record, command, counted, existing
from .terminal import Read, keys, whole_lines

if TYPE_CHECKING:
    from ..record.store import Store
    from ..types import Trajectory

KEYS = {
    "u": "up",
    "d": "down",
    "c": "correct",
    "t": "say in words",
    "s": "skip",
    "z": "undo",
    "q": "quit",
}
SKIPPED = "label/skipped"
"""The key in the record under which skipped runs stand: they come again with --skipped."""


@command("label")
def label(
    *,
    store: Record,
    contains: str = "",
    subject: Annotated[str | None, Parameter(name=("--subject", "--user"))] = None,
    limit: AtLeastOne | None = None,
    skipped: bool = False,
    rubric: bool = False,
    rubric_file: Path | None = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
) -> int:
    """Judge recorded runs, one after the other, with a key each: whet label --store runs.db

    Shows each run that nobody rated as a conversation, answers that differ before those that repeat one. Keys: u up,
    d down, c correct it, t say something about it, s skip, z undo, q quit. What was said is recorded at once; start it
    again to go on.

    Where thumbs are too few to judge by, a rubric may do. whet label --rubric --model NAME --base-url URL has one
    drafted from what people liked and disliked, for you to accept, edit or refuse. It is recorded only if a
    judge who reads it agrees with thumbs of people whom the draft did not show; then whet improve uses it.

    Parameters
    ----------
    contains
        Only runs with these words in the question, the answer or a comment.
    subject
        Only runs of this person.
    limit
        At most this many runs.
    skipped
        The runs that were skipped before as well.
    rubric
        Draft a rubric instead. Exits 1 if none was recorded.
    rubric_file
        The same with a rubric of your own, which is only proven.
    """
    from ..record.store import Store

    if rubric or rubric_file is not None:
        from .rubric import RubricRun, label_rubric

        return label_rubric(RubricRun(store, model, base_url, rubric_file))
    with Store(existing(store)) as opened:
        unrated = RunFilter(unrated=True, contains=contains)
        passed = set() if skipped else set(opened.state(SKIPPED, []))
        runs = [run for run in opened.trajectories(subject=subject) if unrated(run) and run.id not in passed]
        session = Labelling(opened, _different_first(runs)[:limit])
        if not session.runs:
            print(f"{store}: every run {'that fits ' if contains or subject else ''}is rated or was skipped")
            return 0
        try:
            with keys() as read:
                session.work(read)
        finally:
            print(f"\n{store}: {session.summary}")
    return 0


def _different_first(runs: Sequence[Trajectory]) -> list[Trajectory]:
    """The first run of each question and answer, then those that repeat one: a second opinion teaches less."""
    first: dict[tuple[str, str], Trajectory] = {}
    for run in runs:
        first.setdefault((run.task.instruction, run.output_text), run)
    chosen = {run.id for run in first.values()}
    return [*first.values(), *(run for run in runs if run.id not in chosen)]


@dataclass
class Labelling:
    """One sitting: runs to judge, and what was said so far."""

    store: Store
    runs: Sequence[Trajectory]
    at: int = 0
    said: list[tuple[int, str]] = field(default_factory=list)
    """Place and key of what was done, for undo."""

    def work(self, read: Read) -> None:
        """Show and ask until the runs or the answers end."""
        while self.at < len(self.runs):
            run = self.runs[self.at]
            print(f"\n{self.at + 1} of {counted(len(self.runs), 'run')}")
            print("\n".join(transcript(run)))
            print("  ".join(f"[{key}] {what}" for key, what in KEYS.items()), flush=True)
            key = self._known(read)
            if key in ("q", ""):
                return
            self._do(key, run)

    def _known(self, read: Read) -> str:
        while True:
            key = read().casefold()
            if key in KEYS or key in ("", "\x04"):
                return "" if key == "\x04" else key
            print(f"{key!r} is none of {', '.join(KEYS)}", flush=True)

    def _do(self, key: str, run: Trajectory) -> None:
        if key == "z":
            self._undo()
            return
        if key == "s":
            self._skip(run.id, True)
        elif key in ("u", "d"):
            self._note(run.id, value=1.0 if key == "u" else -1.0, kind="thumb")
            print(f"→ {KEYS[key]}")
        elif text := self._line("right answer" if key == "c" else "comment"):
            more = {"correction": text, "kind": "correction"} if key == "c" else {"comment": text}
            self._note(run.id, **{"kind": "comment", **more})
            if key == "c":
                self._note(run.id, value=-1.0, kind="thumb")
        else:
            return
        if key != "t":  # after a comment the same run still waits for a thumb
            self.said.append((self.at, key))
            self.at += 1

    def _undo(self) -> None:
        if not self.said:
            print("nothing to undo")
            return
        self.at, key = self.said.pop()
        run = self.runs[self.at].id
        if key == "s":
            self._skip(run, False)
        else:
            self._note(run, value=0.0, kind="thumb")  # the record forgets nothing: this takes the thumb back
        print("→ taken back")

    def _note(self, run: str, **said: object) -> None:
        from ..record.tracing.labels import check_feedback
        from ..types import Feedback

        note = Feedback(run=run, **said)  # type: ignore[arg-type]
        check_feedback(note)
        self.store.add_feedback(note)

    def _skip(self, run: str, skip: bool) -> None:
        passed = [each for each in self.store.state(SKIPPED, []) if each != run]
        self.store.put_state(SKIPPED, [*passed, run] if skip else passed)

    def _line(self, what: str) -> str:
        print(f"{what}: ", end="", flush=True)
        with whole_lines():
            return sys.stdin.readline().strip()

    @property
    def summary(self) -> str:
        """What was done in this sitting, and what is left."""
        kinds = [key for _, key in self.said]
        parts = [
            f"{kinds.count(key)} {word}"
            for key, word in (("u", "up"), ("d", "down"), ("c", "corrected"), ("s", "skipped"))
        ]
        left = sum(rating(run) is None for run in self.runs[self.at :])
        return (
            f"{', '.join(parts)}; {counted(left, 'run')} left, to go on: whet label --store {self.store.path}"
        )
