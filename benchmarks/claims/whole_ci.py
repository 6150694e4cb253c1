"""GitHub's side of `night_whole`: the repository's workflow on a fresh clone of a pull request, and its check.

The workflow is the one of docs/verdict.md, word for word.  What `actions/checkout` and `actions/setup-python` do is
done here, and whet with what the agent needs is installed; every other step runs as a runner of GitHub runs it.  Its
exit code, its annotation and its summary become a check of the commit at a fake of GitHub's API, where whoever merges
reads it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import yaml

from whet.models.fakes import ScriptedGitHub

if TYPE_CHECKING:
    from whole_agents import WholeAgent

SLUG, TOKEN = "shop/desk", "token-of-the-night"
DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "verdict.md"
_EVALS = """import json
from pathlib import Path

import pytest
from desk import answer

ROWS = [json.loads(line) for line in (Path(__file__).parent / "asked.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_answer(row, whet_score):
    said = answer(row["question"], row["person"])
    good = all(part in said.lower() for part in row["parts"])
    whet_score(float(good), group=row["person"])
    assert good
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


class Workflow:
    """The documented workflow, and a runner for it."""

    EVALS = 240
    """Questions of the repository's own evals."""

    def put(self, folder: Path, asked: Sequence[Mapping[str, str]], agent: WholeAgent) -> None:
        """Put it into a repository, with evals that it runs."""
        text = re.search(
            r"^```yaml\n(name: .*?)^```", DOCUMENTED.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        assert text is not None
        place = folder / ".github" / "workflows" / "whet.yml"
        place.parent.mkdir(parents=True)
        place.write_text(text[1], encoding="utf-8")
        (folder / "requirements.txt").write_text("", encoding="utf-8")
        (folder / "evals").mkdir()
        (folder / "evals" / "test_desk.py").write_text(_EVALS, encoding="utf-8")
        (folder / "conftest.py").write_text("", encoding="utf-8")
        rows = [
            {
                "id": f"q{number}",
                "person": each["person"],
                "question": each["question"],
                "parts": agent.parts_of(each),
            }
            for number, each in enumerate(asked)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows if row["parts"])
        (folder / "evals" / "asked.jsonl").write_text(lines, encoding="utf-8")

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
