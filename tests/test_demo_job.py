"""The main job end to end on a small synthetic company: report, release, and going on after a stop."""

from __future__ import annotations

import asyncio
import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("lightgbm")

from whet import Store
from whet.errors import InputError, NotFoundError
from whet.stats import ClusterMean
from whet.worlds.demo.job import SMALL, JobOptions, MailJob
from whet.worlds.demo.main import ask, run_demo
from whet.worlds.demo.proof import run_job
from whet.worlds.demo.report import in_words
from whet.worlds.email import generate, same, write

STAGES = ["weak", "naive", "rule", "head", "cloned", "trained", "released"]
FIGURES = ["success", "hallucination", "idk_answerable", "idk_unanswerable", "turns", "n", "interval"]


@dataclass(frozen=True)
class Ran:
    """A job that ran to its end without a stop."""

    mail: Path
    output: Path
    public: Mapping[str, Any]
    """What `--json` printed."""
    report: Mapping[str, Any]


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Ran:
    """The small job, run once for all test processes: the first that needs it runs it."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared if worker_id == "master" else shared.parent
    folder, printed = shared / "small-job", shared / "small-job.json"
    with (shared / "small-job.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            write(generate(7, mailboxes=9, mails=130), folder / "mail")
            with (shared / "small-job.part").open("w") as out:
                subprocess.run([sys.executable, __file__, str(folder)], stdout=out, check=True)
            (shared / "small-job.part").rename(printed)
    with Store(folder / "run" / "whet.db") as store:
        report = store.state("demo-1/report")
    return Ran(folder / "mail", folder / "run", msgspec.json.decode(printed.read_bytes()), report)


def demo(folder: Path) -> int:
    """The job that the fixture runs, in a process of its own and a second one beside it."""
    return run_demo(
        mail=folder / "mail",
        held_out=None,
        seed=0,
        fold=None,
        store=None,
        output=folder / "run",
        resume=False,
        as_json=True,
        sizes=SMALL,
        processes=2,
    )


def test_the_json_has_every_stage_tier_and_figure(ran: Ran) -> None:
    assert list(ran.public) == ["seed", "seconds", "cpu_seconds", "stages", "verdict"]
    assert list(ran.public["stages"]) == STAGES
    for stage in ran.public["stages"].values():
        assert list(stage) == ["mix", "exact", "vague", "hard"]
        for figures in stage.values():
            assert list(figures) == FIGURES
            low, high = figures["interval"]
            assert 0 <= low <= figures["success"] <= high <= 1
        tiers = [stage[tier]["n"] for tier in ("exact", "vague", "hard")]
        assert tiers[0] == tiers[1] == tiers[2] / 2
        assert stage["mix"]["n"] == sum(tiers)
    wanted = {"promote", "effect", "interval", "e_value", "n", "against", "reasons"}
    assert wanted <= set(ran.public["verdict"])
    assert ran.public["verdict"]["against"] == "weak"


def test_what_is_released_is_the_best_proven_and_its_figures_are_its_own(ran: Ran) -> None:
    stages, released = ran.report["stages"], ran.report["released"]
    assert ran.report["verdict"]["promote"], "this job is sized so that something is promoted"
    assert released in ("rule", "head", "trained", "route")
    line = next(line for line in ran.report["learners"] if line["name"] == released)
    assert stages["released"] == line["figures"]
    gain = stages["released"]["mix"]["success"] - stages["weak"]["mix"]["success"]
    # The effect is that of a mailbox drawn anew; the difference of the two lines stands in the first reason.
    assert f"success {gain:+.3f} over" in ran.report["verdict"]["reasons"][0]
    owners, anew = ran.report["owners"], ClusterMean()
    for mailbox, n, *shares in owners["rows"]:
        successes = dict(
            zip(owners["agents"], (round(float(one) * int(n) / 100) for one in shares), strict=True)
        )
        for index in range(int(n)):
            anew.add((index < successes[released]) - (index < successes["weak"]), mailbox)
    assert anew.plain == pytest.approx(gain)
    assert ran.report["verdict"]["effect"] == pytest.approx(anew.mean)


def test_the_gate_judges_mailboxes_that_nothing_was_learned_from(ran: Ran) -> None:
    held_out = set(ran.report["held_out"].split(", "))
    with Store(ran.output / "whet.db") as store:
        judged = {one.id: one.task.group for one in store.trajectories(experiment="demo-1/gate")}
        others = {one.task.group for one in store.trajectories() if one.id not in judged}
    assert set(judged.values()) == held_out
    assert others
    assert not held_out & others
    assert [row[0] for row in ran.report["owners"]["rows"]] == sorted(held_out)


def test_the_choice_says_how_sure_it_is_and_no_mailbox_of_the_gate_has_a_part_in_it(ran: Ran) -> None:
    reason = next(reason for reason in ran.report["composition"] if reason.startswith("head "))
    assert re.search(r"over rule|beside rule", reason)
    assert re.search(r"\((?:s\.e\. \d+\.\d, )?\d+ pairs\)$", reason)
    with Store(ran.output / "whet.db") as store:
        rows = store.state("demo-1/stage/cross-fitted: head")["result"]["rows"]
        looked = len(store.state("demo-1/stage/validation: head")["result"]["rows"])
    assert f" {looked + len(rows)} pairs)" in reason
    assert bool(rows) == ("cross-fitted" in reason)
    assert not {group for _, group, *_ in rows} & set(ran.report["held_out"].split(", "))


def test_the_table_is_said_in_plain_words(ran: Ran) -> None:
    told = in_words(ran.report)[0]
    weak, released = (ran.public["stages"][name]["mix"]["success"] for name in ("weak", "released"))
    assert f"gets {100 * released:.0f} right instead of {100 * weak:.0f}" in told
    assert "Nothing is released." in in_words({**ran.report, "released": "weak"})[0]
    assert told in (ran.output / "report.html").read_text(encoding="utf-8")


def test_every_learner_says_what_it_cost(ran: Ran) -> None:
    lines = {line["name"]: line for line in ran.report["learners"]}
    for name in ("rule", "cloned", "trained"):
        assert 0 < lines[name]["rollouts"] <= SMALL.rollouts
        assert lines[name]["seconds"] > 0
    assert lines["weak"]["rollouts"] == 0
    assert lines["weak"]["lift"] is None
    stages = [row["stage"] for row in ran.report["timings"]]
    assert stages[0] == "mail"
    assert stages[-1].startswith("gate: ")
    assert lines["rule"]["rollouts"] + lines["trained"]["rollouts"] < sum(
        row["rollouts"] for row in ran.report["timings"]
    )
    assert any("parsing the question costs" in reason for reason in ran.report["composition"])


def test_two_processes_share_the_stages_and_what_they_do_at_once_counts_once(ran: Ran) -> None:
    rows = {row["stage"]: row for row in ran.report["timings"]}
    assert rows.pop("mail, second process")["seconds"] > 0
    stages = sorted((row["at"], row["at"] + row["seconds"]) for row in rows.values())
    twice = sum(max(0.0, min(end, later) - begun) for (_, end), (begun, later) in pairwise(stages))
    assert twice > 0, "none ran beside another"
    assert ran.public["seconds"] <= max(end for _, end in stages) - stages[0][0] + 1e-3
    assert ran.public["seconds"] < sum(row["seconds"] for row in rows.values())
    spent = sum(row["cpu_seconds"] for row in ran.report["timings"])
    assert ran.public["cpu_seconds"] == pytest.approx(spent)


def test_the_page_is_one_file_without_scripts_or_outside_resources(ran: Ran) -> None:
    page = (ran.output / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "default-src 'none'" in page
    for forbidden in ("<script", "<img", "<link", "<iframe", "javascript:", "@import", "url("):
        assert forbidden not in page.lower()
    assert not re.search(r"\b(?:src|href)\s*=", page)
    assert not re.search(r"\son\w+\s*=", re.sub(r"<pre>.*?</pre>", "", page, flags=re.DOTALL))


def test_the_patch_is_accepted_by_git_and_is_what_was_learned(
    ran: Ran, repository: Path, tmp_path: Path
) -> None:
    assert ran.report["verdict"]["promote"]
    patch = ran.output / "agent.patch"
    shutil.copytree(repository / "examples", tmp_path / "examples")
    for command in (["init", "--quiet"], ["apply", "--check", str(patch)], ["apply", str(patch)]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    with Store(ran.output / "whet.db") as store:
        live = store.live()
    assert live is not None
    code = (
        "import json; from mail_agent.agent import RULE; from mail_agent.parsing import PARSER;"
        "print(json.dumps({'rule': RULE, 'parser': PARSER}))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "examples", check=True, capture_output=True, text=True
    )
    assert msgspec.json.decode(said.stdout) == {name: live[name].content for name in ("rule", "parser")}


def test_the_released_agent_is_asked_over_its_own_mail(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(ran.output / "whet.db") as store:
        runs = [one for one in store.trajectories(experiment="demo-1/gate") if one.task.answer is not None]
    solved = next(one for one in runs if one.score("success") == 1 and one.task.meta["tier"] == "exact")
    assert ask(solved.task.instruction, store=None, output=ran.output) == 0
    said, _, source = capsys.readouterr().out.partition("\nfrom: ")
    assert same(solved.task.meta["kind"], said, str(solved.task.answer))
    assert source.strip()


def test_asking_where_nothing_was_released_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="run `whet demo` first"):
        ask("When?", store=None, output=tmp_path)
    with Store(tmp_path / "whet.db"):
        pass
    with pytest.raises(NotFoundError, match="nothing has been released"):
        ask("When?", store=None, output=tmp_path)


class Stopped(Exception):
    """What a test stops a job with."""


async def run_until(options: JobOptions, what: str, at: int) -> None:
    """Run the job and stop it when progress on `what` has reached `at`."""

    def watch(about: str, done: int, total: int | None = None, **figures: float | str) -> None:
        if about == what and done >= at:
            raise Stopped

    with Store(options.output / "whet.db") as store, pytest.raises(Stopped):
        await run_job(MailJob(options, store, name="demo-1", progress=watch))


def test_a_job_stopped_between_and_within_stages_comes_to_the_result_of_two_processes_in_one(
    ran: Ran, tmp_path: Path
) -> None:
    options = JobOptions(mail=ran.mail, output=tmp_path, sizes=SMALL)

    async def stopped() -> dict[str, Any]:
        await run_until(options, "users", SMALL.users)  # runs and thumbs are recorded, the stage is not
        await run_until(options, "rule", 2)  # in the middle of the search
        await run_until(options, "cloning", 2)  # in the middle of cloning
        await run_until(options, "grpo", 2)  # in the middle of training, beyond its last checkpoint
        with Store(tmp_path / "whet.db") as store:
            before = {one.id for one in store.trajectories()}
            report = await run_job(MailJob(options, store, name="demo-1"))
            assert before <= {one.id for one in store.trajectories()}
        return report

    def kept(output: Path) -> set[bytes]:
        """What is recorded of every run, but for its times and ids: live weights have another id each time."""
        with Store(output / "whet.db") as store:
            return {
                msgspec.json.encode(
                    (
                        *(run.task, run.seed, run.scores, run.outcome, run.output, len(run.steps)),
                        *(id for name, id in sorted(run.versions.items()) if name != "policy"),
                        *(said.value for said in run.feedback),
                    )
                )
                for run in store.trajectories()
            }

    report = msgspec.json.decode(msgspec.json.encode(asyncio.run(stopped())))
    assert report["stages"] == ran.public["stages"]
    assert report["verdict"] == ran.public["verdict"]
    assert report["bundles"] == ran.report["bundles"]
    assert report["composition"] == ran.report["composition"]
    assert kept(tmp_path) == kept(ran.output)
    assert (tmp_path / "agent.patch").read_text() == (ran.output / "agent.patch").read_text()


def test_resuming_with_other_options_or_without_a_job_is_refused(ran: Ran, tmp_path: Path) -> None:
    def resumed(output: Path, seed: int) -> int:
        return run_demo(
            mail=ran.mail,
            held_out=None,
            seed=seed,
            fold=None,
            store=None,
            output=output,
            resume=True,
            as_json=True,
            sizes=SMALL,
        )

    with pytest.raises(InputError, match="no job to resume"):
        resumed(tmp_path, 0)
    shutil.copy(ran.output / "whet.db", tmp_path / "whet.db")
    with pytest.raises(InputError, match="other options"):
        resumed(tmp_path, 1)


if __name__ == "__main__":
    sys.exit(demo(Path(sys.argv[1])))
