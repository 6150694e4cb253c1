"""`scripts/claims COMMAND`: measures what the project claims and writes it into docs/claims.md.

Every command runs the product as a user would, keeps each run's store and log under --folder, and
replaces its own section of the page.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import evolution
import folds
from kill import kill
from record import MODELS, PARTS, models, record

from whet.worlds.demo.job import FOLDS, SMALL, Sizes
from whet.worlds.demo.main import run_demo

DATA = Path(os.environ.get("WHET_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/claims", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/claims"), help="where runs are kept")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, about: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=about, description=about)

    mail = command("mail", "The main job on real mail, over folds of the owners and seeds.")
    mail.add_argument("--mail", type=Path, default=DATA / "enron_mail", help="a folder of mails")
    mail.add_argument("--folds", type=int, default=FOLDS, choices=range(1, FOLDS + 1))
    synthetic = command("synthetic", "The main job on a synthetic company per seed.")
    for one in (mail, synthetic):
        one.add_argument("--seeds", type=int, default=3)
        one.add_argument("--jobs", type=int, default=1, help="runs at once, each on two cores")
        one.add_argument("--reuse", action="store_true", help="take finished runs in the folder as they are")
    controls = command("controls", "Each learner without its information must improve nothing.")
    controls.add_argument("--seeds", type=int, default=3)
    null = command(
        "aa", "A sampled policy against itself, watched continuously; the best of null candidates."
    )
    null.add_argument("--pairings", type=int, default=1_000)
    null.add_argument("--trials", type=int, default=200)
    null.add_argument("--candidates", type=int, default=20)
    gate = command("gate", "The gate on simulated groups without an effect: how often it promotes.")
    gate.add_argument("--runs", type=int, default=4_000)
    gate.add_argument("--watched", type=int, default=1_000)
    folded = command(
        "out-of-fold", "A proof out of fold, where nothing has an effect: how often it promotes."
    )
    folded.add_argument("--runs", type=int, default=1_000)
    folded.add_argument("--folds", type=int, default=3)
    judged = command("sql", "A reward model for SQL queries, on databases that it never saw.")
    judged.add_argument("--data", type=Path, default=DATA / "intercode_sql", help="InterCode's recordings")
    judged.add_argument("--seeds", type=int, default=3)
    killed = command("kill", "kill -9 at random moments, then --resume.")
    killed.add_argument("--times", type=int, default=10)
    killed.add_argument("--runs", type=int, help="between how many runs; otherwise each kill has its own")
    killed.add_argument("--seed", type=int, default=0)

    compared = command("methods", "Every weight method from one clone, on the e-mail agent and a text world.")
    compared.add_argument("--seeds", type=int, default=3)
    compared.add_argument("--seed", type=int, help="this one alone, instead of the first --seeds")
    compared.add_argument("--worlds", default="mail,text", help="which of them, with commas between")
    compared.add_argument("--cells", default="", help="these cells alone, with commas between")

    called = command("calls", "Function calling taught to a small policy, on names it never saw and on BFCL.")
    called.add_argument("--data", type=Path, default=DATA / "bfcl", help="BFCL's questions and answers")
    called.add_argument("--seeds", type=int, default=3)

    evolution.add_arguments(
        command("evolution", "What evolution finds, with a scripted model and without one.")
    )
    for one in (controls, null, compared):
        one.add_argument("--small", action="store_true", help="a job of half a minute, to try it out")
    killed.add_argument("--full", action="store_true", help="the whole job, not one of half a minute")
    trained = command("kill-training", "kill -9 at random moments of whet train, then --resume.")
    trained.add_argument("--times", type=int, default=10)
    trained.add_argument("--seed", type=int, default=0)
    methods = command("training", "Every weight method on a small task, with its control.")
    methods.add_argument("--seeds", type=int, default=3)
    told = command("glam", "A policy over admissible actions in BabyAI's GoTo, told in words.")
    told.add_argument("--seeds", type=int, default=3)
    rated = command(
        "newcomers", "What a newcomer types, from thumbs or a table to a proven change; with its controls."
    )
    rated.add_argument("--seeds", type=int, default=3)
    rated.add_argument("--seed", type=int, help="this one alone, instead of the first --seeds")
    rated.add_argument(
        "--world", type=Path, help="a folder with another agent and other people, as newcomers_world"
    )
    rated.add_argument(
        "--trials", default="", help="these alone, with commas between; with --world, thumbs alone"
    )
    rated.add_argument(
        "--here", action="store_true", help="commands run in this environment, not in a bare one"
    )
    unattended = command(
        "night", "One unattended night of whet autopilot: faults repaired, decoys left alone."
    )
    unattended.add_argument("--seeds", type=int, default=3)
    unattended.add_argument("--seed", type=int, help="this one alone, instead of the first --seeds")
    unattended.add_argument("--world", type=Path, help="a folder with another world, as night_world")
    unattended.add_argument(
        "--only",
        default="",
        choices=("", "issues", "repairs", "kills", "relapse", "shuffled"),
        help="this part alone",
    )
    unattended.add_argument("--first", type=int, default=0, help="the first of --seeds")
    unfooled = command("no-false-win", "What is not better must not win: gate, judges, rewards and data.")
    unfooled.add_argument("--lines", default="", help="these alone, with commas between")
    unfooled.add_argument("--data", type=Path, default=DATA, help="the folder of the data sets")
    tried = command(
        "night-trial", "What is tried on people at night: no effect, bad canaries, drift, shadows."
    )
    tried.add_argument("--seed", type=int, default=0)
    tried.add_argument("--parts", default="", help="these alone, with commas between")
    tried.add_argument("--requests", type=int, default=10_000, help="through the gateway with shadows")
    released = command("night-release", "The release log killed at every step, and a pull request repeated.")
    released.add_argument("--seed", type=int, default=0)
    whole = command(
        "night-whole",
        "The whole loop on a LangGraph agent, on the mail agent, and in their repositories' CI.",
    )
    whole.add_argument("--parts", default="ci,langgraph,mail", help="some of ci, langgraph, mail")
    whole.add_argument("--seeds", type=int, default=1)
    whole.add_argument("--seed", type=int, help="this one alone, instead of the first --seeds")
    kept = command("record", "A benchmark of the record, with its own options: what it prints.")
    kept.add_argument("--heading", default="", help="of the section, for a second one of the same benchmark")
    kept.add_argument("part", choices=PARTS)
    kept.add_argument("options", nargs=argparse.REMAINDER, help="of benchmarks/PART.py")
    real = command("models", "A benchmark of training real models, with its own options: what it prints.")
    real.add_argument("--heading", default="", help="of the section, for a second one of the same benchmark")
    real.add_argument("part", choices=MODELS)
    real.add_argument("options", nargs=argparse.REMAINDER, help="of the benchmark in benchmarks/training")
    guarded = command(
        "night-guard", "Attacks on permissions, harmless calls, and one hostile person of twenty."
    )
    guarded.add_argument("--seeds", type=int, default=3)
    guarded.add_argument("--seed", type=int, help="this one alone, instead of the first --seeds")
    guarded.add_argument("--made-up", type=int, default=1_000, help="commands made at random for each seed")
    guarded.add_argument("--data", type=Path, default=DATA, help="the folder of the data sets")
    small = commands.add_parser("small")  # what `kill` kills
    small.add_argument("--seed", type=int, default=0)
    small.add_argument("--output", type=Path, required=True)
    small.add_argument("--resume", action="store_true")
    return parser


def _methods(options: argparse.Namespace) -> None:
    from method_report import names_of
    from method_worlds import WORLDS
    from methods import METHODS, methods

    methods(
        options.folder,
        worlds=names_of(options.worlds, WORLDS),
        seeds=range(options.seeds) if options.seed is None else [options.seed],
        only=names_of(options.cells, METHODS),
        small=options.small,
    )


def main() -> int:
    """Run one command."""
    options = _parser().parse_args()
    folder: Path = options.folder
    match options.command:
        case "mail":
            seeds = range(options.seeds)
            folds.mail(
                folder,
                data=options.mail,
                folds=options.folds,
                seeds=seeds,
                parallel=options.jobs,
                reuse=options.reuse,
            )
        case "synthetic":
            folds.synthetic(folder, seeds=range(options.seeds), parallel=options.jobs, reuse=options.reuse)
        case "controls":
            from controls import controls

            controls(folder, seeds=range(options.seeds), sizes=SMALL if options.small else Sizes())
        case "aa":
            from null import aa

            aa(
                folder,
                pairings=options.pairings,
                trials=options.trials,
                candidates=options.candidates,
                # Fewer lessons leave a policy that never succeeds, which is equal to itself for a dull reason.
                sizes=replace(SMALL, cloned=2_500, validation=200) if options.small else Sizes(),
            )
        case "sql":
            from sql import sql

            sql(options.data, seeds=options.seeds)
        case "methods":
            _methods(options)
        case "calls":
            from calls import calls

            calls(folder, data=options.data, seeds=options.seeds)
        case "gate":
            from gate import gate

            gate(runs=options.runs, watched=options.watched)
        case "evolution":
            evolution.evolution(options)
        case "kill":
            runs = options.times if options.runs is None else options.runs
            kill(folder, times=options.times, runs=runs, seed=options.seed, full=options.full)
        case "kill-training":
            from kill_training import kill_training

            return int(not kill_training(folder, times=options.times, seed=options.seed))
        case "training":
            from training import training

            training(seeds=options.seeds)
        case "glam":
            from glam import glam

            glam(seeds=options.seeds)
        case "night":
            from night import nights

            seeds = range(options.first, options.first + options.seeds)
            return int(
                not nights(
                    folder,
                    seeds if options.seed is None else [options.seed],
                    world=options.world,
                    only=options.only,
                )
            )
        case "newcomers":
            from newcomers import TRIALS, newcomers

            every = ["thumbs", *TRIALS] if options.world is None else ["thumbs"]
            return int(
                not newcomers(
                    folder / "newcomers",
                    world=options.world,
                    seeds=range(options.seeds) if options.seed is None else [options.seed],
                    trials=options.trials.split(",") if options.trials else every,
                    # A page of claims has one section for all seeds.
                    page=options.world is None and options.seed is None,
                    here=options.here,
                )
            )
        case "no-false-win":
            from no_false_win import LINES, no_false_win

            wanted = options.lines.split(",") if options.lines else list(LINES)
            if unknown := [name for name in wanted if name not in LINES]:
                raise SystemExit(f"--lines: there is no {unknown[0]!r}; there are {', '.join(LINES)}")
            lines = [name for name in LINES if name in wanted]
            return int(not no_false_win(options.data, folder / "no-false-win", lines=lines))
        case "night-guard":
            from night_guard import night_guard

            seeds = range(options.seeds) if options.seed is None else [options.seed]
            return int(not night_guard(options.data, seeds=seeds, made_up=options.made_up))
        case "night-trial":
            from night_trial import PARTS as TRIED
            from night_trial import night_trial

            parts = [name for name in TRIED if not options.parts or name in options.parts.split(",")]
            reached = night_trial(
                folder / "night-trial",
                seed=options.seed,
                parts=parts,
                requests=options.requests,
                page=options.seed == 0,
            )
            return int(not reached)
        case "out-of-fold":
            from out_of_fold import out_of_fold

            return int(not out_of_fold(runs=options.runs, folds=options.folds))
        case "night-release":
            from night_release import night_release

            return int(not night_release(seed=options.seed))
        case "night-whole":
            from night_whole import night_whole

            seeds = range(options.seeds) if options.seed is None else [options.seed]
            return int(not night_whole(folder / "night-whole", seeds, options.parts.split(",")))
        case "record":
            place = folder / options.part
            return int(not record(options.part, options.options, folder=place, heading=options.heading))
        case "models":
            return int(not models(options.part, options.options, heading=options.heading))
        case "small":
            return run_demo(
                mail=None,
                held_out=None,
                seed=options.seed,
                fold=None,
                store=None,
                output=options.output,
                resume=options.resume,
                as_json=True,
                sizes=SMALL,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
