"""`whet tasks guide`: tasks that an agent fails, done with a document at hand that says how."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from ..errors import InputError
from .improve import named_bundle
from .named import named, opened_rewards
from .queue import tasks_app
from .root import BaseUrl, JudgeModel, NewRecord, Print, counted, print_json
from .task_writing import read_documents

if TYPE_CHECKING:
    from ..learn.guided import GuidedAccount
    from ..types import Trajectory


@tasks_app.command(name="guide")
def guide_tasks(
    file: Path,
    /,
    *,
    agent: Annotated[
        str,
        Parameter(
            help="The agent's function, as module:function, imported from the current folder. It acts for real."
        ),
    ],
    documents: Path,
    store: NewRecord,
    reward: tuple[str, ...] = (),
    judge_model: JudgeModel = None,
    base_url: BaseUrl = None,
    bundle: str = "live",
    no_control: bool = False,
    seed: int = 0,
    json: Print = False,
) -> int:
    """Have an agent do what it fails with a document at hand that says how, and record the runs that are verified.

    For example: whet tasks guide tasks.jsonl --agent my_agent:answer --documents manuals --store runs.db --reward exact

    Each task is run as it is; one that fails is run again with the document that it was written from, or that fits it
    best, before its instruction. A run that solves its task is recorded without the document, so that what learns from
    it learns to do without. The gate's tasks are left alone. Each is also tried with the document of another task: what
    that solves is no merit of the documents.

    Parameters
    ----------
    file
        Tasks with a right answer or a checker.
    documents
        What says how: as whet tasks write takes it.
    reward
        The name of a built-in reward, module:function, or a judge that a card in the record admits. May be repeated;
        the first says what is solved, from a half on.
    bundle
        What the agent runs with: live, none, or the id of a Bundle in the store.
    no_control
        Do not try tasks with the documents of others.
    seed
        Random seed of the runs.
    """
    from ..learn.datasets.traffic import GUIDED
    from ..learn.guided import guide
    from ..record.store import Store
    from ..record.tasks import from_jsonl

    if not reward:
        raise InputError("nothing says what is solved: give --reward NAME (exact, f1 or module:function)")
    tasks, sources = from_jsonl(file), read_documents(documents)
    with Store(store) as opened:

        async def guided() -> tuple[list[Trajectory], GuidedAccount]:
            async with AsyncExitStack() as stack:
                rewards = await opened_rewards(reward, opened, base_url, stack, judge_model=judge_model)
                return await guide(
                    named(agent),
                    tasks,
                    sources,
                    rewards,
                    bundle=named_bundle(opened, bundle),
                    control=not no_control,
                    seed=seed,
                )

        kept, account = asyncio.run(guided())
        opened.put(*kept, experiment=GUIDED)
    if json:
        print_json({**msgspec.to_builtins(account), "runs": [run.id for run in kept]})
        return 0
    print(f"{counted(account.tasks, 'task')}: {account.solved} solved as they are")
    print(f"  of {account.guided} others that a document fits {account.helped} are solved with it")
    if account.misled is not None:
        print(f"  with the document of another task {account.misled} of {account.misguided}")
    print(
        f"{counted(len(kept), 'verified run')} recorded in {store} without the documents (whet export, whet train)"
    )
    return 0
