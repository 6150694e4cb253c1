"""`whet generate-training-data`: rows that a target is judged on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .app import app, existing

if TYPE_CHECKING:
    from ..data.callee import Callee
    from ..data.generation import Account
    from ..evolution.agent import Agent
    from ..types import Trajectory

HERE = Path()


@app.command(alias="generate_training_data")
def generate_training_data(
    *,
    target: tuple[str, ...],
    num_samples: int = 30,
    store: Path | None = None,
    repository: Path = HERE,
    output: Path = Path("whet_data"),
    model: str | None = None,
    base_url: str | None = None,
    api_key_env: str = "OPENAI_API_KEY",
    seed: int = 0,
    timeout: float = 10.0,
    json: bool = False,
) -> int:
    """Make rows for a target: what goes in, what is known to come out, and where that is from.

    Recorded runs come first, with what people said of them; then docstrings and calls in the repository and its
    tests; then a model, where one is given; else inputs made from the signature, with what the target answers
    today, which is no goal but shows what a change would change. Rows are deduplicated, divided by group, and
    checked for leaks. Exits 0 if there are as many as asked for, 1 with the reason if there are fewer.

    Parameters
    ----------
    target
        Name of a target, or module:function; may be given several times.
    num_samples
        Rows wanted for each.
    store
        The record of runs to begin with.
    repository
        Where the targets are. The target itself is run in the sandbox.
    output
        Folder; each target gets train.jsonl, validation.jsonl, gate.jsonl and account.json in one of its own.
    model
        A model that writes the missing rows, as its endpoint names it.
    base_url
        OpenAI-compatible endpoint of the model, up to and including /v1.
    api_key_env
        Name of the environment variable that holds its key.
    seed
        Of what is made and of how it is divided.
    timeout
        Seconds that one call of the target may take.
    json
        Print one JSON object.
    """
    from ..errors import InputError
    from ..evolution.agent import Agent

    if (model is None) != (base_url is None):
        raise InputError("a model needs both --model and --base-url")
    if store is not None:
        existing(store)
    agent = Agent(repository, ())
    endpoint = (model, base_url, api_key_env) if model and base_url else None
    accounts = asyncio.run(
        _generated(agent, target, num_samples, _runs(store), output, endpoint, seed=seed, timeout=timeout)
    )
    if json:
        print(msgspec.json.encode({"folder": str(output), "targets": accounts}).decode())
    else:
        for name, account in accounts.items():
            _print(name, account, output / name)
    return 0 if all(not account.why for account in accounts.values()) else 1


def _runs(store: Path | None) -> list[Trajectory]:
    from ..store import Store
    from ..tracing.signals import hear

    if store is None:
        return []
    with Store(store) as opened:
        hear(opened)
        return list(opened.trajectories())


async def _generated(
    agent: Agent,
    names: Sequence[str],
    count: int,
    runs: Sequence[Trajectory],
    output: Path,
    endpoint: tuple[str, str, str] | None,
    *,
    seed: int,
    timeout: float,
) -> dict[str, Account]:
    from ..data import examples
    from ..data.generation import generate
    from ..models import OpenAIModel, Recorded
    from ..sandbox import Limits, Pool
    from ..store import Log, Store

    accounts: dict[str, Account] = {}
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(Pool(Limits(wall_seconds=timeout, cpu_seconds=timeout)))
        writer = None
        if endpoint is not None:
            output.mkdir(parents=True, exist_ok=True)
            behind = OpenAIModel(endpoint[1], endpoint[0], api_key=os.environ.get(endpoint[2]))
            await stack.enter_async_context(behind)
            record = stack.enter_context(Store(output / "runs.db"))
            writer = Recorded(behind, Log(record, "generate-training-data"))
        for name in names:
            callee: Callee = agent.called(name)
            rows, account = await generate(
                callee, count, pool=pool, runs=runs, texts=agent.texts(), model=writer, seed=seed
            )
            examples.write(output / callee.name, rows)
            account_file = output / callee.name / "account.json"
            account_file.write_bytes(msgspec.json.format(msgspec.json.encode(account), indent=2) + b"\n")
            accounts[callee.name] = account
    return accounts


def _print(name: str, account: Account, folder: Path) -> None:
    print(f"{name}: {account.kept} of {account.wanted} rows in {folder}")
    print("  from " + ", ".join(f"{how} {count}" for how, count in account.sources.items()))
    print("  split " + ", ".join(f"{part} {count}" for part, count in account.splits.items()))
    print(f"  {account.goals} say what should come out; leakage: {account.leakage}")
    if account.gate:
        print(f"  {account.gate}")
    for why, count in account.dropped.items():
        example = account.examples_of.get(why, "")
        print(f"  left out {count}: {why}" + (f", for instance {example}" if example else ""))
    if account.why:
        print(f"  {account.why}")
