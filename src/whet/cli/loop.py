"""`whet demo` and `whet verdict`: the whole loop on an embedded example, and the gate alone."""

from __future__ import annotations

from pathlib import Path

from .app import app

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
        Which half of the mailboxes is judged (0 or 1); the seed chooses if left out.
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
    from .. import demo as room

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
def verdict(
    a: Path,
    b: Path,
    /,
    *,
    margin: float = 0.0,
    suite: tuple[Path, Path] | None = None,
    suite_margin: float = 0.02,
    json: bool = False,
) -> int:
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
    suite
        Two more files: outcomes of the baseline and of the candidate on what must not be forgotten. A drop there
        takes the promotion back.
    suite_margin
        How far success may fall there; it must be shown to have fallen no further.
    json
        Print the verdict as one JSON object.
    """
    from ..verdict import render, to_json
    from ..verdict import verdict as judge

    found = judge(a, b, margin=margin, suite=suite, suite_margin=suite_margin)
    print(to_json(found).decode() if json else render(found))
    return 0
