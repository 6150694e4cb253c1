"""`whet demo` and `whet verdict`: the whole loop on an embedded example, and the gate alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ..errors import InputError
from .root import BaseUrl, JudgeModel, Print, command
from .shadow import verdict_on_shadow

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
    a: Path | None = None,
    b: Path | None = None,
    /,
    *,
    shadow: str | None = None,
    store: Annotated[Path | None, Parameter(env_var="WHET_STORE", help="With --shadow: the record.")] = None,
    reward: tuple[str, ...] = (),
    judge_model: JudgeModel = None,
    base_url: BaseUrl = None,
    metric: str = "",
    range: tuple[float, float] | None = None,
    group: str = "",
    id: str = "",
    format: str = "",
    variant: tuple[str, str] | None = None,
    margin: float = 0.0,
    suite: tuple[Path, Path] | None = None,
    suite_margin: float = 0.02,
    also: tuple[Path, ...] = (),
    earlier: tuple[Path, ...] = (),
    not_lower: tuple[str, ...] = (),
    not_higher: tuple[str, ...] = (),
    regime: Literal["exchangeable", "new-group"] = "new-group",
    watched: bool = False,
    unpaired: bool = False,
    github: bool = False,
    json: Print = False,
) -> int:
    """Compare two files of per-task results, whatever produced them: is B better than A?

    The first line says keep, drop, or how many more pairs it takes; then come the effect, its interval clustered by
    group, the e-value and the reasons. Read are the results of MLflow, Langfuse, Opik, promptfoo, Inspect, DSPy,
    lm-evaluation-harness and Strands, JUnit XML, CSV and Parquet, and JSON Lines with task (an id) and success (true,
    false, or 0 to 1), and optionally group, cost and outcome.

    Parameters
    ----------
    a
        Results of the baseline.
    b
        Results of the candidate, on the same tasks.
    shadow
        Instead of files: a shadow on trial, compared with what people were answered; the verdict is recorded, and whet
        release --to canary can stand on it.
    reward
        With --shadow: what judges both, a built-in reward, module:function, or a judge that a card in the record
        admits: a rubric's file, a panel's. The first one decides. May be repeated.
    metric
        The score that decides, by its name in the files; needed where they have several.
    range
        The worst and the best score there can be, such as 1 5. If omitted, 0 and 1.
    group
        The field whose value tasks share, such as a customer or a repository. If omitted, group, where there is one.
    id
        The column that names the task, in a table. If omitted, it is guessed, and said.
    format
        whet, table, mlflow, langfuse, opik, promptfoo, inspect, lm-eval, strands or junit. If omitted, the content
        says.
    variant
        Which prompt, model or run of A and of B, by part of its name, where a file holds several side by side.
    margin
        0 tests whether B is better; 0.02, whether it is worse by at most 0.02.
    suite
        Two more files: results of the baseline and of the candidate on tasks that must not be forgotten. A drop there
        prevents promotion.
    suite_margin
        Largest drop of success allowed there; the files must show that it is no larger.
    also
        Results of another candidate. May be repeated: the best of B and these is chosen on a third of the tasks, or of
        the groups, and judged on the others.
    earlier
        A verdict (--json) on the same two, on other tasks, whose evidence counts, too. May be repeated.
    not_lower
        A score or column that must be shown not to fall, as NAME:MARGIN, such as answered:0.02. May be repeated.
    not_higher
        The same for one that must not rise: cost:10% (of the baseline's mean), seconds:0.5. May be repeated.
    regime
        How the tasks came, which decides what they prove: exchangeable (more such tasks), or new-group (tasks of a
        group that was not seen). Both are printed.
    watched
        This is one of several looks at results that grow.
    unpaired
        Take tasks that only one file has, too, and count what is missing at its worst for B.
    github
        For a workflow of GitHub: print an annotation, write the job's summary, and exit with 0 for keep, 1 for drop and
        10 for more pairs. Otherwise the exit code is 0 whatever the answer.
    """
    import os

    from ..prove import answers
    from ..prove.guardrails import read as read_guardrails
    from ..prove.verdict import verdict as judge

    if shadow is None and (a is None or b is None):
        raise InputError("give two files of results, of the baseline and of the candidate; or --shadow TRIAL")
    if shadow is not None:
        decision = verdict_on_shadow(
            shadow, store, reward, margin=margin, base_url=base_url, judge_model=judge_model
        )
        answered = answers.answer(decision, candidate=f"shadow {shadow}")
        print(answers.as_json(decision, answered) if json else answers.told(decision, answered))
        return 0
    assert a is not None
    assert b is not None
    decision = judge(
        a,
        b,
        margin=margin,
        suite=suite,
        suite_margin=suite_margin,
        format=format,
        metric=metric,
        group=group,
        id=id,
        range=range,
        variants=variant,
        also=also,
        earlier=earlier,
        guardrails=read_guardrails(not_lower, not_higher),
        regime=regime,
        watched=watched,
        unpaired=unpaired,
    )
    candidate = str(b) if variant is None else variant[1]
    answered = answers.answer(decision, candidate=candidate if not also else f"the best of {1 + len(also)}")
    if json:
        print(answers.as_json(decision, answered))
    else:
        print(answers.told(decision, answered))
    if not github:
        return 0
    if not json:
        print(answers.github(decision, answered, os.environ))
    return answers.EXIT_CODES[answered.word]
