"""GitHub's side of `night_whole`: the repository's workflow on a fresh clone of a pull request, and its check.

The workflow is the one of docs/verdict.md, word for word.  What `actions/checkout` and `actions/setup-python` do is
done here, and whet with what the agent needs is installed; every other step runs as a runner of GitHub runs it.  Its
exit code, its annotation and its summary become a check of the commit at a fake of GitHub's API, where whoever merges
reads it.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import yaml

from whet.models.fakes import ScriptedGitHub, ScriptedServer
from whet.models.fakes.clerk import RULES, Clerk

if TYPE_CHECKING:
    from whole_agents import WholeAgent

SLUG, TOKEN = "shop/desk", "token-of-the-night"
DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "verdict.md"
_EVALS = """import json
from pathlib import Path

import pytest
from desk import answer
from judge import good

ROWS = [json.loads(line) for line in (Path(__file__).parent / "asked.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_answer(row, whet_score):
    right = good(row, answer(row["question"], row["person"]))
    whet_score(float(right), group=row["person"])
    assert right
"""


@dataclass(frozen=True)
class Check:
    """What a workflow came to on a commit."""

    commit: str
    conclusion: str
    """success or failure."""
    annotation: str
    """What it says at the top of the pull request; "" for nothing."""
    summary: str
    log: str


class Forge(ScriptedGitHub):
    """The fake of GitHub with checks of commits, which a runner posts and whoever merges reads."""

    def __init__(self) -> None:
        super().__init__(SLUG, token=TOKEN)
        self.checks: list[dict[str, Any]] = []

    def _pulls(self, method: str, path: str, content: Mapping[str, Any]) -> tuple[int, Any]:
        if (method, path) == ("POST", f"/repos/{SLUG}/check-runs"):
            self.checks.append(dict(content))
            return 201, {"id": len(self.checks), **content}
        if read := re.fullmatch(rf"/repos/{SLUG}/commits/([0-9a-f]+)/check-runs", path):
            found = [check for check in self.checks if check["head_sha"] == read[1]]
            return 200, {"total_count": len(found), "check_runs": found}
        return super()._pulls(method, path, content)

    def asked(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Any:
        """Ask the API, as a runner or a person does."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        answered = httpx2.request(method, f"{self.url}/repos/{SLUG}{path}", headers=headers, json=content)
        answered.raise_for_status()
        return answered.json()

    def opened(self, branch: str) -> None:
        """Open a pull request by hand."""
        self.asked("POST", "/pulls", {"title": branch, "body": "", "head": branch, "base": "main"})


def _documented(begins: str) -> str:
    """The block of the page that begins so.

    Raises:
        LookupError: there is none.
    """
    found = re.search(
        rf"^```yaml\n({re.escape(begins)}.*?)^```",
        DOCUMENTED.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    if found is None:
        raise LookupError(f"{DOCUMENTED} has no block that begins with {begins!r}")
    return found[1]


class Workflow:
    """The documented workflow, and a runner for it."""

    EVALS = 240
    """Questions of the repository's own evals."""

    def put(self, folder: Path, asked: Sequence[Mapping[str, str]], agent: WholeAgent) -> None:
        """Put it into a repository, with evals that it runs."""
        self._write(folder, _documented("name: "))
        (folder / "requirements.txt").write_text("pytest\n", encoding="utf-8")
        (folder / "evals").mkdir()
        (folder / "evals" / "test_desk.py").write_text(_EVALS, encoding="utf-8")
        (folder / "conftest.py").write_text("", encoding="utf-8")
        (folder / "evals" / "judge.py").write_text(agent.judge, encoding="utf-8")
        lines = "".join(
            json.dumps(
                {
                    "id": f"q{number}",
                    "person": each["person"],
                    "question": each["question"],
                    **agent.expected(each),
                }
            )
            + "\n"
            for number, each in enumerate(asked)
        )
        (folder / "evals" / "asked.jsonl").write_text(lines, encoding="utf-8")

    def put_gate(self, folder: Path) -> None:
        """Put it into the repository of a prompt, with the step that makes the runs itself in the place of evals."""
        before, worktree, _ = _documented("name: ").partition("origin/${{ github.base_ref }}\n")
        self._write(folder, before + worktree + _documented("      - run: whet gate"))

    def _write(self, folder: Path, text: str) -> None:
        place = folder / ".github" / "workflows" / "whet.yml"
        place.parent.mkdir(parents=True)
        place.write_text(text, encoding="utf-8")

    def run(
        self, remote: Path, branch: str, place: Path, python: Path, variables: Mapping[str, str], forge: Forge
    ) -> Check:
        """Run it on a pull request's branch, post what it comes to, and read that back."""
        shutil.rmtree(place, ignore_errors=True)
        workspace, output = place / "work", place / "output"
        place.mkdir(parents=True)
        subprocess.run(["git", "clone", "-q", str(remote), str(workspace)], check=True)
        subprocess.run(["git", "checkout", "-q", branch], cwd=workspace, check=True)
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=workspace, check=True, capture_output=True, text=True
        ).stdout.strip()
        # As `actions/checkout` has it: a pull request is checked merged with what it is against.
        team = ("git", "-c", "user.name=runner", "-c", "user.email=runner@localhost")
        subprocess.run([*team, "merge", "-q", "--no-edit", "origin/main"], cwd=workspace, check=True)
        described = yaml.safe_load(
            (workspace / ".github" / "workflows" / "whet.yml").read_text(encoding="utf-8")
        )
        summary = place / "summary.md"
        environ = {
            **os.environ,
            **variables,
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_WORKSPACE": str(workspace),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_OUTPUT": str(output),
        }
        (job,), log, code = described["jobs"].values(), "", 0
        for step in job["steps"]:
            script = str(step.get("run", "")).replace("${{ github.base_ref }}", "main")
            if not script or script.startswith("pip install"):
                continue
            done = subprocess.run(
                ["bash", "-e", "-c", script],
                cwd=workspace,
                env=environ,
                capture_output=True,
                text=True,
                timeout=900,
            )
            log += f"$ {script}\n{done.stdout}{done.stderr}"
            code = done.returncode
            if code:
                break
        said = re.findall(r"^::(notice|warning|error) [^:]*::(.*)$", log, re.MULTILINE)
        text = said[-1][1].replace("%0A", "\n").replace("%25", "%") if said else ""
        written = summary.read_text(encoding="utf-8") if summary.exists() else ""
        forge.asked(
            "POST",
            "/check-runs",
            {
                "name": described["name"],
                "head_sha": commit,
                "status": "completed",
                "conclusion": "failure" if code else "success",
                "output": {"title": text.partition("\n")[0], "summary": written},
            },
        )
        (posted,) = forge.asked("GET", f"/commits/{commit}/check-runs")["check_runs"]
        (place / "log.txt").write_text(log, encoding="utf-8")
        return Check(
            commit, posted["conclusion"], posted["output"]["title"], posted["output"]["summary"], log
        )


workflow = Workflow()


def prompt_repository(folder: Path) -> dict[str, Check]:
    """Branch → check, of pull requests to the repository of a prompt: one with half of the rules that it lacks, one
    with other words, and one that drops its rules again once they are merged."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    clerk, remote, code = Clerk(4), folder / "remote.git", folder / "prompt"

    def git(*words: str, place: Path = code) -> None:
        team = ("git", "-c", "user.name=team", "-c", "user.email=team@localhost")
        subprocess.run([*team, *words], cwd=place, check=True, capture_output=True)

    git("init", "-q", "--bare", "-b", "main", str(remote), place=folder)
    git("clone", "-q", str(remote), str(code), place=folder)
    workflow.put_gate(code)
    rows = clerk.rows(150, seed=7)
    with (code / "evals.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    ruled = "\n".join([clerk.prompt, *(f"- {rule.text}" for rule in RULES[: len(RULES) // 2])])
    checks = {}
    with ScriptedServer(clerk) as model, Forge() as forge:
        variables = {"MODEL": "scripted", "OPENAI_BASE_URL": model.base_url}

        def push(branch: str, text: str) -> None:
            (code / "prompt.txt").write_text(text, encoding="utf-8")
            git("add", "-A")
            git("commit", "-q", "-m", branch)
            git("push", "-q", "origin", f"HEAD:refs/heads/{branch}")

        push("main", clerk.prompt)
        for branch, text in (
            ("rules", ruled),
            ("polite", f"{clerk.prompt}\nBe polite.\n"),
            ("shorter", clerk.prompt),
        ):
            git("fetch", "-q", "origin")
            git("checkout", "-q", "--detach", "origin/main")
            push(branch, text)
            forge.opened(branch)
            place = folder / f"runner-{branch}"
            checks[branch] = workflow.run(remote, branch, place, Path(sys.executable), variables, forge)
            if checks[branch].conclusion == "success":
                git("push", "-q", "origin", "HEAD:refs/heads/main")
    return checks
