"""`whet demo`: sets the main job up, shows its progress, prints and writes the report."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ...errors import InputError, MissingExtra, NotFoundError, StoreError
from ...record.store import Store
from .report import print_report, write_html

if TYPE_CHECKING:
    from .job import JobOptions, Sizes

KEY = "demo/last"


class Bars:
    """Progress on standard error: bars on a terminal, else a line as each thing under way ends.

    It shows the stage, its progress and the rest; the figures behind are those of the learner.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, Any] = {}
        self._printed: dict[str, float] = {}
        self._began = time.perf_counter()
        self._lock = threading.Lock()

    def __enter__(self) -> Bars:
        self.bars.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.bars.__exit__(*exception)

    def __call__(self, what: str, done: int, total: int | None = None, **figures: float | str) -> None:
        shown = "  ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in list(figures.items())[:4]
        )
        with self._lock:
            if not self.console.is_terminal:
                self._say(what, done, total, shown)
                return
            if what not in self._tasks:
                self._tasks[what] = self.bars.add_task(what, total=total, figures="")
            self.bars.update(self._tasks[what], completed=done, total=total, figures=shown)

    def _say(self, stage: str, done: int, total: int | None, shown: str) -> None:
        now = time.perf_counter()
        if done == total or now - self._printed.get(stage, self._began) > 10:
            self._printed[stage] = now
            self.console.print(
                f"[{now - self._began:6.1f} s] {stage} {done}/{total or '?'}  {shown}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )


def run_demo(
    *,
    mail: Path | None,
    held_out: Path | None,
    seed: int,
    fold: int | None,
    store: Path | None,
    output: Path,
    resume: bool,
    as_json: bool,
    sizes: Sizes | None = None,
    processes: int | None = None,
) -> int:
    """Run the main job, or go on with the last one; returns the exit code (0 also when the gate refuses).

    Args:
        sizes: the budgets, if not the full ones.
        processes: 1 or 2; None for two where there are two cores. The figures are the same.

    Raises:
        InputError: no usable mail; nothing to resume, or it was begun with other options.
        MissingExtra: torch or lightgbm is not installed.
        StoreError: the store cannot be written.
    """
    for folder in (mail, held_out):
        if folder is not None and not folder.exists():
            raise InputError(
                f"{folder} does not exist; --mail and --held-out take a maildir, an mbox or a folder of mails"
            )
    _needs()
    console = Console(stderr=True)
    output = output.resolve()  # weights are found again from any working directory
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the output folder {output} cannot be made: {error.strerror}; give another --output"
        ) from error
    path = store or output / "whet.db"
    with Store(path) as opened, Bars(console) as bars:
        # Only now, as it imports torch: a folder that cannot be written is refused at once.
        from .job import JobOptions

        job_options = JobOptions(mail=mail, held_out=held_out, seed=seed, fold=fold, output=output)
        if sizes is not None:
            job_options = replace(job_options, sizes=sizes)
        name = _name(opened, job_options, resume)
        report = asyncio.run(_run(job_options, opened, name, bars, processes))
        opened.put_state(f"{name}/report", report)
    page = output / "report.html"
    write_html(report, page)
    if as_json:
        public = {key: report[key] for key in ("seed", "seconds", "cpu_seconds", "stages", "verdict")}
        sys.stdout.write(msgspec.json.encode(public).decode() + "\n")
    else:
        print_report(report, Console(width=None if sys.stdout.isatty() else 110))
        console.print(f"report: {page}\nask it: whet demo --ask 'When ...?' --output {output}", markup=False)
    return 0


def _needs() -> None:
    """Say which extras are missing, all of them, before anything has been begun."""
    missing: dict[str, str] = {}
    for package, extra in (("torch", "train"), ("lightgbm", "head")):
        try:
            installed = find_spec(package) is not None
        except ImportError:
            installed = False
        if not installed:
            missing[package] = extra
    if missing:
        raise MissingExtra(" and ".join(missing), ",".join(missing.values()))


def _name(store: Store, options: JobOptions, resume: bool) -> str:
    """The job's name in the store: the last one's to go on with it, else a new one."""
    last = store.state(KEY)
    if resume:
        if last is None:
            raise InputError("there is no job to resume in this store; leave --resume out to begin one")
        if last["key"] != options.key():
            raise InputError(
                f"{last['name']} was begun with other options; repeat those, or leave --resume out"
            )
        return str(last["name"])
    name = f"demo-{1 if last is None else last['number'] + 1}"
    store.put_state(KEY, {"name": name, "number": int(name[5:]), "key": options.key(), **options.public()})
    return name


async def _run(
    options: JobOptions, store: Store, name: str, bars: Bars, processes: int | None
) -> dict[str, Any]:
    from ...learn.training.local import use_threads
    from .job import MailJob, keep_loaded
    from .processes import cores
    from .proof import run_job

    # At this size a second thread costs more than it brings, and with one the results are the same everywhere.
    # A second process is another matter: it runs other stages.
    use_threads(1)
    job = MailJob(options, store, name=name, progress=bars)
    keep_loaded()
    return await run_job(job, processes=processes or min(2, cores()))


def ask(question: str, *, store: Path | None, output: Path) -> int:
    """Put a question to the released agent, over all the mail of its job; prints the answer and its source.

    Raises:
        NotFoundError: nothing has been released in this store.
    """
    path = store or output / "whet.db"
    if not path.exists():
        raise NotFoundError(f"there is no store at {path}; run `whet demo` first, or name it with --store")
    with Store(path) as opened:
        bundle, last = opened.live(), opened.state(KEY)
        if bundle is None or last is None:
            raise NotFoundError(
                f"nothing has been released in {path}: the gate promoted no agent, or no job has ended"
            )
        _needs()
        from .job import answer

        print(asyncio.run(answer(question, bundle, last)))
    return 0
