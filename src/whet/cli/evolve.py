"""`whet evolve`: better targets of a repository, or a better program by its evaluator."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import InputError
from .flags import with_options
from .root import BaseUrl, ModelName, Print, app, listed, print_json, refuse_half_a_model
from .terminal import bold

if TYPE_CHECKING:
    from ..learn.evolution.reports import EvolutionReport
    from ..learn.evolution.search.engine import SearchOutcome
    from ..learn.evolution.search.estimate import Estimate
    from ..learn.evolution.search.openevolve import Config
    from ..learn.evolution.search.settings import RepositoryInput, Settings

TOPICS = {
    "": (
        *(
            "targets",
            "data",
            "input",
            "expected",
            "group",
            "model",
            "base_url",
            "iterations",
            "seconds",
            "dollars",
            "price",
        ),
        *("output", "dry_run", "json"),
    ),
    "What is improved, and how it is judged": (
        *("repository", "entry", "evaluators", "store", "timeout", "network", "agent_calls"),
        "unsafe_local",
    ),
    "Limits": ("calls", "tokens", "cpu_seconds", "target_score"),
    "Proposals": ("ask", "models_only", "offline", "command", "command_seconds"),
    "Search": ("population", "workers", "seed", "config", "checkpoint"),
}


def evolve(
    program: Annotated[
        str | None,
        Parameter(help="The file to improve; or module:function, the same as --target."),
    ] = None,
    evaluator: Annotated[
        Path | None,
        Parameter(
            help="A Python file with evaluate(path), or evaluate_stage1 to evaluate_stage3. Not with --target."
        ),
    ] = None,
    /,
    *,
    source: RepositoryInput,
    settings: Settings,
    model: ModelName = None,
    base_url: BaseUrl = None,
    config: Annotated[
        Path | None,
        Parameter(help="OpenEvolve's config.yaml: models, islands, thresholds. Needs the extra evolve."),
    ] = None,
    checkpoint: Annotated[
        Path | None, Parameter(help="An OpenEvolve checkpoint, whose programs the search also starts from.")
    ] = None,
    dry_run: Annotated[
        bool,
        Parameter(help="Judge the start, ask no model for proposals, and print what the run would take."),
    ] = False,
    json: Print = False,
) -> int:
    """Improve functions and prompts of a repository (--target), or a PROGRAM by its EVALUATOR.

    Targets are called in the sandbox and compared outside it, on the rows of whet generate-training-data. The results
    are agent.patch against your source, a table of every row, and the gate's verdict on held-out rows. Exits 1 if the
    gate refuses the result, which is then in refused.patch. Several targets evolve together; a change that lowers the
    end-to-end score is refused.

    A PROGRAM is improved between its EVOLVE-BLOCK marks. Its EVALUATOR is a Python file whose function
    evaluate(path_of_the_program) returns numbers to maximise.

    Without a model, built-in edits tune and recombine the existing code; a model adds new ideas. Run the same command
    again to resume.
    """
    from ..learn.evolution.live import LiveLine
    from ..learn.evolution.programs import estimate_program, evolve_program
    from ..learn.evolution.repositories import estimate_targets, evolve_targets
    from ..models.budget import Meter

    settings = replace(settings, config=_config(config, model, base_url))
    meter, proposals = Meter(), settings.iterations or settings.config.iterations
    if source.agent_calls is not None and not source.network:
        raise InputError("--agent-calls limits an agent that runs outside the sandbox: it needs --network")
    if evaluator is not None and source.network:
        raise InputError("--network is for --target: a PROGRAM is judged by its EVALUATOR")
    if program is not None and evaluator is None:
        source = replace(source, targets=(*source.targets, program))
    if source.targets and evaluator is not None:
        raise InputError("--target is judged on rows: omit EVALUATOR, or give it as --evaluators")
    if source.targets:
        if dry_run:
            return _print_estimate(asyncio.run(estimate_targets(source, settings, notice=_notice)), json)
        with LiveLine(meter, proposals=proposals, calls=settings.calls, quiet=json) as line:
            work = evolve_targets(source, settings, progress=line.proposal, notice=_notice, meter=meter)
            report = asyncio.run(work)
        return _print_report(report, json, _print_targets)
    if program is None or evaluator is None:
        raise InputError("nothing to improve: give --target NAME, module:function, or PROGRAM and EVALUATOR")
    file = Path(program)
    if dry_run:
        return _print_estimate(asyncio.run(estimate_program(file, evaluator, settings)), json)
    with LiveLine(meter, proposals=proposals, calls=settings.calls, quiet=json) as line:
        tell = partial(line.proposal, "")
        work = evolve_program(
            file, evaluator, settings, checkpoint=checkpoint, progress=tell, notice=_notice, meter=meter
        )
        report = asyncio.run(work)
    return _print_report(report, json, _print_program)


# Resolved when it is asked for: only then the options are imported, and with them the search.
app.command(f"{__name__}:command", help=evolve.__doc__, **listed("evolve"))


def __getattr__(name: str) -> Any:
    if name != "command":
        raise AttributeError(name)
    from ..learn.evolution.search.settings import RepositoryInput, Settings

    return with_options(
        evolve,
        {"source": RepositoryInput(), "settings": Settings()},
        topics=TOPICS,
        names={"targets": "target"},
    )


def _config(path: Path | None, model: str | None, base_url: str | None) -> Config:
    from ..learn.evolution.search.openevolve import Config, ModelConfig, read_config

    refuse_half_a_model(model, base_url)
    settings = read_config(path) if path else Config(iterations=100)
    if settings.ignored:
        _notice(f"{path}: no effect here: {', '.join(settings.ignored)}")
    if model is None or base_url is None:
        return settings
    return replace(settings, models=(ModelConfig(name=model, api_base=base_url),))


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_report(report: EvolutionReport, json: bool, as_text: Callable[[EvolutionReport], None]) -> int:
    if json:
        print_json(report.json())
    else:
        as_text(report)
    return int(report.refused)


def _print_estimate(estimate: Estimate, json: bool) -> int:
    if json:
        print_json(estimate.json())
        return 0
    money = "no price is known (--price)" if estimate.dollars is None else f"${estimate.dollars:.4f}"
    print(
        f"nothing was spent: score {estimate.start_score:g} as it stands, "
        f"{estimate.seconds_per_evaluation:.3f} s an evaluation\n"
        f"proposals            {estimate.proposals:>10,}\n"
        f"evaluations          {estimate.evaluations_at_most:>10,} at most, {estimate.evaluations_likely:,} likely\n"
        f"model calls          {estimate.model_calls_at_most:>10,} at most\n"
        f"tokens               {estimate.prompt_tokens:>10,} of prompts, {estimate.output_tokens:,} of answers\n"
        f"money                {money:>10}\n"
        f"seconds              {estimate.seconds:>10,.1f} without the models' own time"
    )
    if estimate.agent_calls_at_most:
        print(
            f"agent calls          {estimate.agent_calls_at_most:>10,} at most: their cost is not included above"
        )
    if estimate.budget:
        print(f"budget               {estimate.budget}")
    return 0


def _print_program(report: EvolutionReport) -> None:
    search = report.found
    print(
        f"score {search.start.score:g} → {search.best.score:g} after {search.iterations} proposals and "
        f"{search.evaluations} evaluations in {report.seconds:.1f} s{_swept(search)} "
        f"({search.duplicates} duplicates skipped, {search.timeouts} timeouts; stopped by {search.stopped})"
    )
    first, again = report.repeated or (0.0, 0.0)
    if abs(first - again) > 0.01 * abs(first):
        print(
            f"the evaluator scored the start {first:g}, and {again:g} when run again: "
            "a smaller gain is luck. Let it seed its random numbers, or take the mean of more trials."
        )
    _print_operators(search)
    print("\n" + (_asked(report) or "no model was asked: tuned and recombined"))
    for finding in report.alarms:
        print(bold(f"ALARM: {finding.reason}"))
    print(f"best program: {report.best_path}\npatch: {report.patch_path} (git apply)")
    print(
        "The evaluator ran beside the program: this score steers a search and proves nothing. Gate the result."
    )


def _asked(report: EvolutionReport) -> str:
    """The models that were asked, and what they cost; "" without any."""
    if not report.models:
        return ""
    spent = report.spent
    dollars = "" if spent["dollars"] is None else f", ${spent['dollars']:.4f}"
    return f"asked {', '.join(report.models)}: {spent['calls']:,} calls, {spent['tokens']:,} tokens{dollars}"


def _swept(search: SearchOutcome) -> str:
    return f", {search.tried:,} single edits tried side by side" if search.tried else ""


def _print_operators(search: SearchOutcome) -> None:
    print(f"\n{'operator':24} {'tried':>7} {'judged':>7} {'better':>7} {'records':>8} {'gain':>10}")
    for row in search.operators:
        print(
            f"{row['name']:24} {row['tried']:>7} {row['evaluated']:>7} {row['improved']:>7} "
            f"{row['records']:>8} {row['gain']:>10.4g}"
        )
        if "failure" in row:
            print(f"    none of them could be judged; the last failed with: {row['failure']}"[:400])


def _print_targets(report: EvolutionReport) -> None:
    from ..prove import verdict as verdicts

    for name, search in report.searches.items():
        print(
            f"{name}: {search.iterations} proposals, {search.evaluations} evaluations{_swept(search)}, "
            f"{search.duplicates} duplicates "
            f"skipped, {search.timeouts} timeouts; stopped by {search.stopped}; compared by {report.evaluators[name]}"
        )
        _print_operators(search)
        print()
    for decision in report.decisions:
        scores = decision.own or decision.end_to_end
        moved = f"{scores[0]:.3f} → {scores[1]:.3f}" if scores else ""
        # Of rows that were searched on: the gate's word comes below, and may be another.
        fate = ("refused" if report.refused else "taken") if decision.taken else "left"
        reason = f"on the rows that were searched, {decision.reason}" if decision.taken else decision.reason
        print(f"{decision.name:24} {fate:8} {moved:16} {reason}")
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
        shown = {finding["sentence"] for finding in report.findings}
        reasons = [reason for reason in verdict.reasons if reason not in shown]
        held = verdicts.held_back(verdict)
        print(f"\n{verdicts.decision(verdict)}: " + "\n  ".join([held, *reasons] if held else reasons))
    if models := _asked(report):
        print(f"\n{models}")
    if report.agent_calls:
        print(f"\nthe agent was called {report.agent_calls} times")
    print(f"\n{report.patch}" if report.patch else "\nnothing changed")
    applied = "refused by the gate, for reading only" if report.refused else "git apply"
    where = f"patch: {report.patch_path} ({applied}), " if report.patch else ""
    print(f"{where}rows: {report.output / 'examples.jsonl'}")
