"""`whet generate-training-data`: rows to judge a target on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .audit import ACCOUNT
from .root import BaseUrl, KeyVariable, ModelName, Print, command, existing, print_json, refuse_half_a_model

if TYPE_CHECKING:
    from ..learn.datasets.callee import Callee
    from ..learn.datasets.generation import Account
    from ..learn.evolution.agents.agent import RepositoryAgent
    from ..types import Trajectory

HERE = Path()


@command("generate-training-data")
def generate_training_data(
    *,
    target: tuple[str, ...],
    num_samples: int = 30,
    store: Path | None = None,
    repository: Path = HERE,
    output: Path = Path("whet_data"),
    model: ModelName = None,
    base_url: BaseUrl = None,
    api_key_env: KeyVariable = "OPENAI_API_KEY",
    seed: int = 0,
    timeout: float = 10.0,
    json: Print = False,
) -> int:
    """Collect rows for a target: its inputs, the right answers where they are known, and their source.

    Rows come from recorded runs with people's feedback first, then from docstrings and from calls in the repository and
    its tests, then from a model, if one is given. Otherwise inputs are synthesised from the signature; their current
    outputs are recorded for comparison only, and are not treated as correct. Rows are deduplicated, divided by group,
    and checked for leaks. Exits 0 if there are as many rows as asked for; otherwise 1, with the reason.

    Parameters
    ----------
    target
        Name of a target, or module:function. May be repeated.
    num_samples
        Rows for each target.
    store
        Store of recorded runs to collect rows from.
    repository
        Repository of the targets. A target is run in the sandbox.
    output
        Folder of the rows; each target gets a folder of its own with train.jsonl, validation.jsonl, gate.jsonl and
        account.json.
    seed
        Random seed, of the inputs and the division.
    timeout
        Time limit of one call of the target, in seconds.
    """
    from ..learn.evolution.agents.agent import RepositoryAgent

    refuse_half_a_model(model, base_url)
    if store is not None:
        existing(store)
    agent = RepositoryAgent(repository, ())
    endpoint = (model, base_url, api_key_env) if model and base_url else None
    accounts = asyncio.run(
        _generated(agent, target, num_samples, _runs(store), output, endpoint, seed=seed, timeout=timeout)
    )
    if json:
        print_json({"folder": str(output), "targets": accounts})
    else:
        for name, account in accounts.items():
            _print(name, account, output / name)
    return 0 if all(not account.why for account in accounts.values()) else 1


def _runs(store: Path | None) -> list[Trajectory]:
    from ..record.influence import weighed
    from ..record.store import Store
    from ..record.tracing.signals import hear

    if store is None:
        return []
    with Store(store) as opened:
        hear(opened)
        influence = weighed(opened.trajectories())
    if influence.sentence:
        print(f"{store}: {influence.sentence}", file=sys.stderr)
    return list(influence.runs)


async def _generated(
    agent: RepositoryAgent,
    names: Sequence[str],
    samples: int,
    runs: Sequence[Trajectory],
    output: Path,
    endpoint: tuple[str, str, str] | None,
    *,
    seed: int,
    timeout: float,
) -> dict[str, Account]:
    from ..learn.datasets import examples
    from ..learn.datasets.generation import generate
    from ..models import OpenAIModel, RecordedModel
    from ..models.trial import trial_address
    from ..record.store import Log, Store
    from ..sandbox import Limits, Pool

    accounts: dict[str, Account] = {}
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(Pool(Limits(wall_seconds=timeout, cpu_seconds=timeout)))
        writer = None
        if endpoint is not None:
            output.mkdir(parents=True, exist_ok=True)
            upstream = OpenAIModel(
                trial_address(endpoint[1]), endpoint[0], api_key=os.environ.get(endpoint[2])
            )
            await stack.enter_async_context(upstream)
            record = stack.enter_context(Store(output / "runs.db"))
            # Answers that were paid for stay in runs.db: begun again, the command asks only for new ones.
            writer = RecordedModel(upstream, Log(record, "generate-training-data"))
        for name in names:
            callee: Callee = agent.called(name)
            rows, account = await generate(
                callee, samples, pool=pool, runs=runs, texts=agent.texts(), model=writer, seed=seed
            )
            examples.write(output / callee.name, rows)
            account_file = output / callee.name / ACCOUNT
            account_file.write_bytes(msgspec.json.format(msgspec.json.encode(account), indent=2) + b"\n")
            accounts[callee.name] = account
    return accounts


def _print(name: str, account: Account, folder: Path) -> None:
    print(f"{name}: {account.kept} of {account.wanted} rows in {folder}")
    print("  from " + ", ".join(f"{how} {count}" for how, count in account.sources.items()))
    print("  split " + ", ".join(f"{part} {count}" for part, count in account.splits.items()))
    print(f"  {account.goals} with a known answer; leakage: {account.leakage}")
    if account.gate:
        print(f"  {account.gate}")
    for why, count in account.dropped.items():
        example = account.examples_of.get(why, "")
        print(f"  left out {count}: {why}" + (f", for instance {example}" if example else ""))
    if account.why:
        print(f"  {account.why}")
