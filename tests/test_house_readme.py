"""The documentation runs: its Python blocks do, and its command lines are ones that exist."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import house_markdown
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
CODE_PAGES = [page for page in PAGES if house_markdown.python_blocks(page)]
NO_RUN_LIMIT = 2
PLAYED = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "my-agent",
            "my-prompt",
            "my-model",
            "coming-from",
            "import",
            "server",
            "training",
            "verdict",
        )
    ),
]
"""Pages whose shell blocks are run."""
STAGES = ROOT / "tests" / "stages"
"""What the reader of a page has already, `PAGE.sh`; the other pages start from a bare folder."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def play(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", house_markdown.__file__, str(page)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_the_front_pages_show_code() -> None:
    assert {"README.md", "CONTRIBUTING.md"} <= {name(page) for page in CODE_PAGES}


@pytest.mark.parametrize("page", CODE_PAGES, ids=name)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    done = play(page, tmp_path)
    assert done.returncode == 0, f"{name(page)}\n{done.stdout}\n{done.stderr}"


def test_few_blocks_are_excused_and_each_says_why() -> None:
    excused = [
        block
        for page in PAGES
        for block in house_markdown.blocks(page)
        if block.language == "python" and block.note.startswith("no-run")
    ]
    assert len(excused) <= NO_RUN_LIMIT, [f"{name(block.path)}:{block.line}" for block in excused]
    for block in excused:
        reason = block.note.removeprefix("no-run").lstrip(":").strip()
        assert len(reason) >= 10, f"{name(block.path)}:{block.line}: say why this block cannot run"


def test_a_page_whose_code_fails_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text\n\n```python\nimport asyncio\n\nseen = await asyncio.sleep(0, 'a')\n```\n\n"
        "```python\nassert seen == 'b', seen\n```\n"
    )
    done = play(page, tmp_path)
    assert done.returncode != 0
    assert f'{page}", line 10' in done.stderr
    page.write_text(page.read_text().replace("'b'", "'a'"))
    assert play(page, tmp_path).returncode == 0


def not_run(stage: Path) -> list[tuple[str, str]]:
    """Commands that a stage leaves out, each with the reason."""
    return re.findall(r"^#! (.+) -- (.+)$", stage.read_text(), re.MULTILINE)


def staged(page: Path) -> str:
    """The page's shell blocks behind its stage, which says what words of the page stand for.

    A command that is not run is a whole line of the page, up to a comment.
    """
    script, stage = house_markdown.script(page), STAGES / f"{page.stem}.sh"
    if not stage.exists():
        return script
    setup = stage.read_text()
    for command, _ in not_run(stage):
        line = rf"^(?={re.escape(command)} *(?:#.*)?$)"
        script, count = re.subn(line, ": not run: ", script, flags=re.MULTILINE)
        assert count == 1, f"{stage.name}: {count} whole lines of {page.name} are {command!r}"
    for word, own in re.findall(r"^#: (.+) -> (.+)$", setup, re.MULTILINE):
        assert word in script, f"{stage.name}: {page.name} does not say {word!r}"
        script = re.sub(rf"(?<![\w-]){re.escape(word)}(?!\w)", lambda _, own=own: own, script)
    return f"set -euo pipefail\n{setup}{script}"


def shell(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The shell blocks of a page, run as a reader would who pastes one after the other."""
    hidden = ("WHET_", "OPENAI_", "ANTHROPIC_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    script = folder / "page.sh"
    script.write_text(staged(page))
    log = folder / "page.log"
    with log.open("w") as out:
        # Into a file and not a pipe, which what the page leaves in the background would hold open.
        process = subprocess.Popen(
            ["bash", str(script)], cwd=folder, env=environ, stdout=out, stderr=out, start_new_session=True
        )
        try:
            code = process.wait(timeout=500)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return subprocess.CompletedProcess([], code, log.read_text(), "")


@pytest.mark.parametrize("page", PLAYED, ids=name)
def test_the_shell_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    done = shell(page, tmp_path)
    assert done.returncode == 0, f"{name(page)}\n{done.stdout[-6000:]}"
    commands = [line for line in house_markdown.script(page).splitlines() if line.startswith("whet ")]
    assert page.stem in ("README", "coming-from", "server", "training") or len(commands) < 10


UNPLAYED = {
    "README.md": [
        "scripts/demo",
        "scripts/test",
        "whet sandbox check",
        "whet improve bills:amount --data examples.csv",
        "whet evolve program.py evaluator.py --offline",
        "whet rollback --store .whet/whet.db",
    ],
    "training.md": [
        "accelerate launch --config_file fsdp.yaml",
        "whet train sft --store runs.db --reward-function reader:right",
        "whet gate out/first --entry reader:answer",
        "whet release out/first --store runs.db",
        "whet release out/agent --store out/agent/runs.db",
        "whet serve-policy --store out/agent/runs.db",
        "OPENAI_BASE_URL=http://127.0.0.1:4778/v1",
        "whet rollback --store out/agent/runs.db",
        "whet train grpo --env world:env --policy",
        "whet train grpo --env world:env --tasks-file",
    ],
}
"""The beginnings of the commands that no page's run includes; the stage says each whole, and what plays it instead."""
ELSEWHERE = {"integrations.md": "tests/test_house_integrations.py", "CONTRIBUTING.md": "scripts"}
"""Pages with commands that are run by another check, or are the checkout's own scripts."""


def test_every_command_of_a_page_is_run_or_excused_by_name_with_what_runs_it() -> None:
    stages = {page.name: STAGES / f"{page.stem}.sh" for page in PLAYED}
    excused = {page: not_run(stage) for page, stage in stages.items() if stage.exists() and not_run(stage)}
    assert excused.keys() == UNPLAYED.keys()
    for page, commands in excused.items():
        for (command, _), beginning in zip(commands, UNPLAYED[page], strict=True):
            assert command.startswith(beginning), page
    for commands in excused.values():
        for command, reason in commands:
            for named in re.findall(r"(?:tests|docs)/[\w-]+\.\w+", reason):
                assert (ROOT / named).exists(), f"{command}: {named}"
    shells = {
        page.name
        for page in PAGES
        if any(
            block.language == "bash" and "no-run" not in block.note for block in house_markdown.blocks(page)
        )
    }
    assert shells - {page.name for page in PLAYED} == set(ELSEWHERE)
    for place in ELSEWHERE.values():
        assert (ROOT / place).exists()


def test_a_page_whose_shell_fails_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("First `a.txt`:\n\n```text file\none\n```\n\n```bash\ngrep two a.txt\n```\n")
    assert shell(page, tmp_path).returncode == 1
    page.write_text(page.read_text().replace("grep two", "grep one"))
    assert shell(page, tmp_path).returncode == 0


def command_lines(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and words of every `whet ...` command in the shell blocks of a page.

    In a `console` block only the lines after a `$` prompt are commands; the rest is output.
    """
    for block in house_markdown.blocks(page):
        if block.language not in ("bash", "sh", "shell", "console"):
            continue
        text = block.text
        prompted = block.language == "console" and any(line.startswith("$ ") for line in text.splitlines())
        for offset, line in enumerate(text.splitlines()):
            if prompted and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            for separator in ("&&", ";", "|", ">"):
                if separator in words:
                    words = words[: words.index(separator)]
            if words and words[0] == "scripts/demo":
                words = ["whet", "demo", *words[1:]]
            if words and words[0] == "whet":
                yield block.line + offset, words[1:]


def refused(words: list[str]) -> str | None:
    """Why the command line does not accept these words, None if it does; nothing is executed."""
    from cyclopts import CycloptsError, ValidationError

    from whet.cli import app

    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except ValidationError:
        return None  # the words are understood; what they name (a file) is the reader's own
    except CycloptsError as error:
        return str(error)
    return None


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "cli.md"], ids=name)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    wrong = [
        f"{name(page)}:{line}: whet {shlex.join(words)}: {why}"
        for line, words in command_lines(page)
        if (why := refused(words))
    ]
    assert not wrong, "\n".join(wrong)


def test_few_nouns_come_before_the_first_improvement_and_each_is_explained() -> None:
    before, improve, _ = (ROOT / "README.md").read_text().partition("whet improve")
    assert improve
    explained = {word.casefold() for word in re.findall(r"(?<!\*)\*(\w+)\*(?!\*)", before)}
    nouns = (ROOT / "docs" / "nouns.md").read_text()
    own = {word.casefold() for word in re.findall(r"\*\*(\w+)\*\*", nouns)} | {"run", "thumb"}
    # Words that a reader knew before coming, in their everyday sense.
    own -= {
        "environment",
        "model",
        "task",
        "step",
        "usage",
        "failure",
        "group",
        "subject",
        "session",
        "policy",
        "version",
    }
    prose = re.sub(r"```.*?(?:```|\Z)|`[^`]*`", "", before, flags=re.DOTALL).casefold()
    used = {word for word in own if re.search(rf"\b{word}s?\b", prose)}
    assert used <= explained, f"not explained where they come up: {sorted(used - explained)}"
    assert len(explained) < 8


def test_the_readme_shows_the_demo_command() -> None:
    assert any(words[:1] == ["demo"] for _, words in command_lines(ROOT / "README.md"))


@pytest.mark.parametrize("line", ["whet frobnicate", "whet demo --frobnicate", "whet replay"])
def test_a_command_that_does_not_exist_is_caught(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```console\n$ {line}\nwhet output is no command\n```\n")
    found = list(command_lines(page))
    assert len(found) == 1
    assert refused(found[0][1])


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_of_a_page_lead_somewhere(page: Path) -> None:
    import re

    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        place = (page.parent / target.partition("#")[0]).resolve()
        assert place.exists(), f"{name(page)} links to {target}, which does not exist"
        assert place.is_relative_to(ROOT), f"{name(page)} links outside the repository: {target}"
