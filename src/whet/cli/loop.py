"""`whet demo` and `whet verdict`: the whole loop on an embedded example, and the gate alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from .app import Print, command

OUTPUT = Path("whet-demo")


@command("demo")
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
    json: Print = False,
) -> int:
    """Watch the whole loop on an example: no key and no network needed.

    Weights and a classifier are among what it learns, so it takes pip install 'whet[train,head]'.

    An agent answers questions about mail, simulated users rate it, several learners improve it, and the best one that
    is proven on unseen mailboxes is released. Writes report.html and agent.patch.

    Parameters
    ----------
    mail
        A maildir, an mbox or a folder of mails with several mailboxes. If omitted, a synthetic company's.
    held_out
        Judge on the mailboxes of this folder instead of some of --mail.
    seed
        Random seed.
    fold
        Half of the mailboxes to judge on (0 or 1). If omitted, the seed chooses.
    store
        The record of the run; whet.db in the output folder if omitted.
    output
        Folder for the report, the patch and the weights.
    resume
        Resume the interrupted run; the result is the same as without the interruption.
    ask
        Only ask the released agent this question.
    """
    from ..worlds import demo as room

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


@command("verdict")
def verdict(
    a: Path,
    b: Path,
    /,
    *,
    margin: float = 0.0,
    suite: tuple[Path, Path] | None = None,
    suite_margin: float = 0.02,
    also: tuple[Path, ...] = (),
    earlier: tuple[Path, ...] = (),
    regime: Literal["exchangeable", "new-group"] = "new-group",
    watched: bool = False,
    unpaired: bool = False,
    json: Print = False,
) -> int:
    """Compare two files of per-task outcomes, whatever produced them: is B better than A?

    Each line is a JSON object with task (an id) and success (true, false, or 0 to 1), and optionally group, cost and
    outcome. Prints the effect, its interval clustered by group, the e-value, the verdict, and the number of pairs that
    would be needed.

    Parameters
    ----------
    a
        Outcomes of the baseline, JSON Lines.
    b
        Outcomes of the candidate, for the same tasks.
    margin
        0 tests whether B is better; 0.02, whether it is worse by at most 0.02.
    suite
        Two more files: outcomes of the baseline and of the candidate on tasks that must not be forgotten. A drop there
        prevents promotion.
    suite_margin
        Largest drop of success allowed there; the files must show that it is no larger.
    also
        Outcomes of another candidate. May be repeated: the best of B and these is chosen on a third of the tasks, or of
        the groups, and judged on the others.
    earlier
        A verdict (--json) on the same two, on other tasks, whose evidence counts, too. May be repeated.
    regime
        How the tasks came, which decides what they prove: exchangeable (more such tasks), or new-group (tasks of a
        group that was not seen). Both are printed.
    watched
        This is one of several looks at results that grow.
    unpaired
        Take tasks that only one file has, too, and count what is missing at its worst for B.
    """
    from ..prove.verdict import render, to_json
    from ..prove.verdict import verdict as judge

    decision = judge(
        a,
        b,
        margin=margin,
        suite=suite,
        suite_margin=suite_margin,
        also=also,
        earlier=earlier,
        regime=regime,
        watched=watched,
        unpaired=unpaired,
    )
    print(to_json(decision).decode() if json else render(decision))
    return 0
