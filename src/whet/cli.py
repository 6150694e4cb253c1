"""The command line: parse, call, print.

Nothing heavy is imported until a command needs it.  What a user can mend is one line on standard
error and an exit code of its own (`errors.py`); anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import msgspec
from cyclopts import Parameter

from .errors import WhetError

app = cyclopts.App(
    name="whet",
    help="Improve LLM agents from what they actually do: observe, evaluate, learn, prove, deploy.",
    version=lambda: version("whet"),
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,
)

OUTPUT = Path("whet-demo")


@app.command
def demo(
    *,
    mail: Path | None = None,
    held_out: Path | None = None,
    seed: int = 0,
    fold: int | None = None,
    store: Path | None = None,
    output: Path = OUTPUT,
    resume: bool = False,
    ask: str | None = None,
    json: bool = False,
) -> int:
    """Run the whole loop on a mailbox: no key and no network needed.

    An agent answers questions about mail, simulated users rate it, several learners improve it, and the
    best one that is proven on unseen mailboxes is released. Writes report.html and agent.patch.

    Parameters
    ----------
    mail
        A maildir, an mbox or a folder of mails with several mailboxes; a synthetic company if left out.
    held_out
        Judge on the mailboxes of this folder instead of some of --mail.
    seed
        Of everything random.
    fold
        Which third of the mailboxes is judged (0, 1 or 2); the seed chooses if left out.
    store
        The record of the run; whet.db in the output folder if left out.
    output
        Folder for the report, the patch and the weights.
    resume
        Go on with the run that was stopped, to the same result.
    ask
        Ask the released agent this question instead of running anything.
    json
        Print the figures as one JSON object on standard output.
    """
    from . import demo as room

    if ask is not None:
        return room.ask(ask, store=store, output=output)
    return room.run_demo(
        mail=mail,
        held_out=held_out,
        seed=seed,
        fold=fold,
        store=store,
        output=output,
        resume=resume,
        as_json=json,
    )


@app.command
def verdict(a: Path, b: Path, /, *, margin: float = 0.0, json: bool = False) -> int:
    """Compare two files of per-task outcomes, from anything that ran twice: is B better than A?

    Each line is a JSON object: task (id), success (true, false or 0 to 1), and where there are any group,
    cost and outcome. Says the effect, its interval clustered by group, the e-value, the verdict, and how many
    pairs would be needed.

    Parameters
    ----------
    a
        Outcomes of the baseline, JSON Lines.
    b
        Outcomes of the candidate, for the same tasks.
    margin
        0 asks whether B is better; 0.02 whether it is worse by no more than that.
    json
        Print the verdict as one JSON object.
    """
    from .verdict import render, to_json
    from .verdict import verdict as judge

    found = judge(a, b, margin=margin)
    print(to_json(found).decode() if json else render(found))
    return 0


@app.command
def serve(*, store: Path) -> int:
    """Own a store: other processes on this machine record through it until it is stopped.

    Parameters
    ----------
    store
        The file; made if it does not exist.
    """
    from .store import Store

    stopped = threading.Event()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_, lambda *_: stopped.set())
    with Store(store, serve=True) as opened:
        print(
            f"{store}: serving, {opened.counts()['trajectories']:,} trajectories; stop with Ctrl-C",
            flush=True,
        )
        stopped.wait()
    return 0


@app.command
def show(*, store: Path, json: bool = False) -> int:
    """Say what a store holds: how much of each kind, what is live, and what was released when.

    Parameters
    ----------
    store
        The file.
    json
        Print one JSON object.
    """
    from .errors import NotFoundError
    from .store import Store

    if not store.exists():
        raise NotFoundError(f"there is no store at {store}")
    with Store(store) as opened:
        live = opened.live()
        found: dict[str, Any] = {
            "counts": opened.counts(),
            "live": live.ids if live is not None else {},
            "releases": [
                {"id": one.id, "at": one.at, "bundle": one.bundle.ids, "reason": one.reason}
                for one in opened.history()
            ],
        }
    if json:
        print(msgspec.json.encode(found).decode())
        return 0
    for name, count in found["counts"].items():
        print(f"{name:32} {count:>10,}")
    for name, id in found["live"].items():
        print(f"live {name:27} {id}")
    for release in found["releases"]:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(release["at"]))
        print(f"released {day}: {release['reason']}")
    return 0


def main(argv: Annotated[Sequence[str] | None, Parameter(parse=False)] = None) -> None:
    """Entry point of the `whet` command; exits with the command's code."""
    try:
        code = app(argv, result_action="return_value")
    except WhetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(
            "stopped; what was acknowledged is kept. Go on with the same command and --resume",
            file=sys.stderr,
        )
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
