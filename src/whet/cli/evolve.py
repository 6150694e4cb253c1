"""`whet evolve`: make a program, or what a repository marks, better by what is known of it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ..types import Budget
from .app import app
from .terminal import bold

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..evolution.engine import Found
    from ..evolution.estimate import Estimate
    from ..evolution.openevolve import Config
    from ..evolution.records import Record
    from ..evolution.reports import Report

HERE = Path()


@app.command(alias="run_openevolve")
def evolve(
    program: str | None = None,
    evaluator: Path | None = None,
    /,
    *,
    target: tuple[str, ...] = (),
    entry: str | None = None,
    data: Path | None = None,
    evaluators: Path | None = None,
    store: Path | None = None,
    repository: Path = HERE,
    config: Path | None = None,
    model: str | None = None,
    base_url: str | None = None,
    iterations: int | None = None,
    seconds: float | None = None,
    cpu_seconds: float | None = None,
    calls: int | None = None,
    tokens: int | None = None,
    dollars: float | None = None,
    price: tuple[float, float] | None = None,
    dry_run: bool = False,
    offline: bool = False,
    models_only: bool = False,
    workers: int | None = None,
    timeout: float | None = None,
    seed: int | None = None,
    output: Path | None = None,
    target_score: float | None = None,
    population: Literal["auto", "islands", "best", "front"] = "auto",
    checkpoint: Path | None = None,
    ask: Literal["changes", "apo", "gepa"] = "changes",
    command: str = "",
    command_seconds: float = 600.0,
    network: bool = False,
    agent_calls: int | None = None,
    unsafe_local: bool = False,
    json: bool = False,
) -> int:
    """Improve what a repository marks (--target, or module:function), or a PROGRAM by its EVALUATOR.

    Targets are called in the sandbox and compared outside on the rows that whet generate-training-data made; what
    comes out is agent.patch against your own source, a table of every row, and the gate's verdict on rows held
    back. Several targets evolve together: one that lowers the end-to-end score is refused. A PROGRAM is
    improved between its EVOLVE-BLOCK marks; EVALUATOR is a Python file with evaluate(path_of_the_program), which
    returns numbers to maximise. Without a model the edits tune and recombine what is there; with one they have
    ideas. Run again, it goes on where it ended.

    Parameters
    ----------
    program
        The file to improve; or module:function, the same as --target.
    evaluator
        A Python file with evaluate(path), or evaluate_stage1 to evaluate_stage3; not with --target.
    target
        Name of a target (whet extract-targets lists them), or module:function; may be given several times.
    entry
        The function that all targets are judged through, by name or as module:function; found by itself where one
        of the targets uses all others.
    data
        Rows: a folder with one for each function, or JSON Lines for the entry; whet_data if left out.
    evaluators
        A folder with admitted evaluators, or one file, which is proven first. Left out: evaluators/TARGET if
        that is there, else answers are compared for equality.
    store
        The record, made if it does not exist; OUTPUT/runs.db if left out. Well-rated runs in it are tried as examples
        in prompts, never those of the gate's groups; without any, a fifth of the training rows is set aside for it.
    repository
        Where the targets are; nothing in it is imported or written to.
    config
        OpenEvolve's config.yaml: models, islands, thresholds. Needs the extra `evolve`.
    model
        A model that proposes, as its endpoint names it; its key is read from OPENAI_API_KEY.
    base_url
        OpenAI-compatible endpoint of --model, up to and including /v1.
    iterations
        Proposals; max_iterations of the config, or 100, unless --seconds or --cpu-seconds is given.
    seconds
        Stop proposing after so much wall-clock time.
    cpu_seconds
        Stop proposing after so much CPU time of candidates and search together.
    calls
        Model calls at most.
    tokens
        Tokens of models at most.
    dollars
        Money for models at most; needs --price.
    price
        Dollars per million tokens of prompt and of output.
    dry_run
        Judge the start, ask no model for proposals, and say what the run would take.
    offline
        Ask no model, whatever the config says.
    models_only
        Leave everything to the models: no edits of our own.
    workers
        Candidates judged at a time; the result does not depend on it.
    timeout
        Seconds per stage of one evaluation (300 unless the config says otherwise), or per call of a target (10).
    seed
        Of everything random; 42 unless the config says otherwise.
    output
        Folder for what comes out; whet_output beside the program, or in the current folder.
    target_score
        Stop once it is reached.
    population
        Who has children: islands, the best few, the front per instance; auto chooses by the program.
    checkpoint
        Begin with the programs of an OpenEvolve checkpoint, too.
    ask
        How models are asked: for changes of the program; by apo, for a criticism of the failures and then for a
        rewrite; or by gepa, with GEPA's own request (extra `gepa`).
    command
        A command of yours that proposes, too: a coding agent, for instance. It is started in a folder with program/,
        evidence.json and budget.json, and edits program/ or prints a patch. It runs as you do, outside the sandbox.
    command_seconds
        After which it is ended.
    network
        The entry is an agent that calls a model, or anything else, over the network: it runs outside of the sandbox as
        you do, in a copy of the repository; its prompts are texts there, its functions that evolve answer from the
        sandbox. Each candidate is tried on a quarter of the rows first; --timeout is 120 then.
    agent_calls
        Calls of such an entry at most; what its models cost is not in --calls, --tokens or --dollars.
    unsafe_local
        Run candidates without the sandbox. Only for code you trust; what it scores is never promoted.
    json
        Print the result as one JSON object.
    """
    from ..errors import InputError
    from ..evolution.programs import estimate_program, evolve_program
    from ..evolution.repositories import Source, estimate_targets, evolve_targets
    from ..evolution.settings import Settings
    from ..models import Price

    settings = Settings(
        config=_config(config, model, base_url),
        store=store,
        output=output,
        budget=Budget(calls=calls, tokens=tokens, dollars=dollars, seconds=seconds),
        price=Price(prompt=price[0], output=price[1]) if price else None,
        iterations=iterations,
        cpu_seconds=cpu_seconds,
        offline=offline,
        edits=not models_only,
        workers=workers,
        timeout=timeout,
        seed=seed,
        target_score=target_score,
        population=population,
        ask=ask,
        command=command,
        command_seconds=command_seconds,
        unsafe_local=unsafe_local,
    )
    if agent_calls is not None and not network:
        raise InputError("--agent-calls limits an agent that runs outside: it needs --network")
    if evaluator is not None and network:
        raise InputError("--network is for --target: a PROGRAM is judged by its EVALUATOR")
    targets = (*target, program) if program is not None and evaluator is None else target
    if targets and evaluator is not None:
        raise InputError("--target is judged on rows: leave EVALUATOR out, or give it as --evaluators")
    if targets:
        source = Source(
            targets=targets,
            repository=repository,
            entry=entry,
            data=data,
            evaluators=evaluators,
            network=network,
            agent_calls=agent_calls,
        )
        if dry_run:
            return _say_estimate(asyncio.run(estimate_targets(source, settings, notice=_notice)), json)
        told = None if json else _progress
        made = asyncio.run(evolve_targets(source, settings, progress=told, notice=_notice))
        return _say(made.json(), json, lambda: _print_targets(made))
    if program is None or evaluator is None:
        raise InputError("nothing to improve: give --target NAME, module:function, or PROGRAM and EVALUATOR")
    given = Path(program), evaluator, settings
    if dry_run:
        return _say_estimate(asyncio.run(estimate_program(*given)), json)
    progress = None if json else lambda record: _progress("", record)
    report = asyncio.run(evolve_program(*given, checkpoint=checkpoint, progress=progress, notice=_notice))
    return _say(report.json(), json, lambda: _print(report))


def _config(path: Path | None, model: str | None, base_url: str | None) -> Config:
    from ..errors import InputError
    from ..evolution.openevolve import Config, ModelConfig, read_config

    if (model is None) != (base_url is None):
        raise InputError("a model needs both --model and --base-url")
    found = read_config(path) if path else Config(iterations=100)
    if found.ignored:
        _notice(f"{path}: no effect here: {', '.join(found.ignored)}")
    if model is None or base_url is None:
        return found
    return replace(found, models=(ModelConfig(name=model, api_base=base_url),))


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _progress(name: str, record: Record) -> None:
    if record.number % 10 == 0 or record.timeout:
        said = f"{record.score:g}" if record.score is not None else record.failure or record.status
        where = f"{name}: " if name else ""
        line = f"{where}proposal {record.number}: {record.operator}: {said}".replace("\n", " ")
        print(line[:110], file=sys.stderr, flush=True)


def _say(found: object, json: bool, otherwise: Callable[[], None]) -> int:
    if json:
        print(msgspec.json.encode(found).decode())
    else:
        otherwise()
    return 0


def _say_estimate(found: Estimate, json: bool) -> int:
    def plain() -> None:
        money = "no price is known (--price)" if found.dollars is None else f"${found.dollars:.4f}"
        print(
            f"nothing was spent: score {found.start_score:g} as it stands, "
            f"{found.seconds_per_evaluation:.3f} s an evaluation\n"
            f"proposals            {found.proposals:>10,}\n"
            f"evaluations          {found.evaluations_at_most:>10,} at most, {found.evaluations_likely:,} likely\n"
            f"model calls          {found.model_calls_at_most:>10,} at most\n"
            f"tokens               {found.prompt_tokens:>10,} of prompts, {found.output_tokens:,} of answers\n"
            f"money                {money:>10}\n"
            f"seconds              {found.seconds:>10,.1f} without the models' own time"
        )
        if found.agent_calls_at_most:
            print(
                f"agent calls          {found.agent_calls_at_most:>10,} at most: what they cost is not in the above"
            )
        if found.budget:
            print(f"budget               {found.budget}")

    return _say(found.json(), json, plain)


def _print(report: Report) -> None:
    found = report.found
    print(
        f"score {found.start.score:g} → {found.best.score:g} after {found.iterations} proposals and "
        f"{found.evaluations} evaluations in {report.seconds:.1f} s "
        f"({found.duplicates} duplicates skipped, {found.timeouts} timeouts; stopped by {found.stopped})"
    )
    if report.repeated is not None and abs(report.repeated[0] - report.repeated[1]) > 0.01 * abs(
        report.repeated[0]
    ):
        print(
            f"the evaluator gave the start {report.repeated[0]:g}, and when asked again {report.repeated[1]:g}: "
            "what is gained by less is luck. Let it seed its random numbers, or take the mean of more trials."
        )
    _print_operators(found)
    print("\n" + (_asked(report) or "no model was asked: tuned and recombined"))
    print(f"best program: {report.best_path}\npatch: {report.patch_path} (git apply)")
    print(
        "The evaluator ran beside the program: this score steers a search, it does not prove. Gate the result."
    )


def _asked(report: Report) -> str:
    """Which models, and what they took; "" without any."""
    if not report.models:
        return ""
    spent = report.spent
    dollars = "" if spent["dollars"] is None else f", ${spent['dollars']:.4f}"
    return f"asked {', '.join(report.models)}: {spent['calls']:,} calls, {spent['tokens']:,} tokens{dollars}"


def _print_operators(found: Found) -> None:
    print(f"\n{'operator':24} {'tried':>7} {'judged':>7} {'better':>7} {'records':>8} {'gain':>10}")
    for row in found.operators:
        print(
            f"{row['name']:24} {row['tried']:>7} {row['evaluated']:>7} {row['improved']:>7} "
            f"{row['records']:>8} {row['gain']:>10.4g}"
        )
        if "failure" in row:
            print(f"    none of them could be judged, the last: {row['failure']}"[:400])


def _print_targets(report: Report) -> None:
    for name, found in report.searches.items():
        print(
            f"{name}: {found.iterations} proposals, {found.evaluations} evaluations, {found.duplicates} duplicates "
            f"skipped, {found.timeouts} timeouts; stopped by {found.stopped}; compared by {report.evaluators[name]}"
        )
        _print_operators(found)
        print()
    for each in report.decisions:
        scores = each.own or each.end_to_end
        moved = f"{scores[0]:.3f} → {scores[1]:.3f}" if scores else ""
        print(f"{each.name:24} {'taken' if each.taken else 'left':6} {moved:16} {each.reason}")
    print(f"\n{'rows':36} {'n':>5} {'before':>8} {'after':>8}")
    for name, splits in report.json()["scores"].items():
        for part, row in splits.items():
            if part == "without_a_goal":
                print(f"{name + ', no known answer':36} {row['n']:>5} {row['changed']:>8} answers changed")
            else:
                print(f"{name + ', ' + part:36} {row['n']:>5} {row['before']:>8.3f} {row['after']:>8.3f}")
    for finding in report.findings:
        print(f"\n{bold(str(finding['sentence']))}")
    verdict = report.verdict
    if verdict is None:
        print(f"\nno verdict: {report.why}")
    else:
        told = {finding["sentence"] for finding in report.findings}
        reasons = [reason for reason in verdict.reasons if reason not in told]
        print(f"\n{'promote' if verdict.promote else 'do not promote'}: " + "\n  ".join(reasons))
    if asked := _asked(report):
        print(f"\n{asked}")
    if report.agent_calls:
        print(f"\nthe agent was called {report.agent_calls} times")
    print(f"\n{report.patch}" if report.patch else "\nnothing changed")
    where = f"patch: {report.patch_path} (git apply), " if report.patch else ""
    print(f"{where}rows: {report.output / 'examples.jsonl'}")
