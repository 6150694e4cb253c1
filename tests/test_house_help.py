"""Every command explains itself, and docs/cli.md is what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import house_reference
import pytest
from cyclopts import App

from whet.cli import app
from whet.cli.root import HOMES, LOOP

FLAGS = {"--help", "-h", "--version"}


def commands(parent: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and subcommand, the bare program first."""
    yield path
    for word in parent:
        if not word.startswith("-"):
            yield from commands(parent[word], (*path, word))


COMMANDS = list(commands(app))


def words_of(path: tuple[str, ...]) -> str:
    return " ".join(path) or "whet"


def exit_code(words: list[str]) -> int | str | None:
    """What the process would exit with."""
    try:
        app(words)
    except SystemExit as done:
        return done.code or 0
    return 0


@pytest.mark.parametrize("path", COMMANDS, ids=words_of)
def test_help_of_a_command_exits_0_and_names_it(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code([*path, "--help"]) == 0
    said = capsys.readouterr()
    assert " ".join(("whet", *path)) in said.out
    assert said.err == ""


def test_a_command_that_does_not_exist_exits_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["frobnicate"]) != 0
    assert "frobnicate" in "".join(capsys.readouterr())


@pytest.mark.parametrize("path", COMMANDS, ids=words_of)
def test_every_option_of_a_command_is_explained(path: tuple[str, ...]) -> None:
    command = app
    for word in path:
        command = command[word]
    assert (command.help or "").strip(), f"whet {' '.join(path)} has no description"
    if command.default_command is None:
        return
    for argument in command.assemble_argument_collection(parse_docstring=True):
        explained = argument.parameter.help or not argument.show
        assert explained, f"{words_of(path)}: {argument.names} is not explained"


def test_the_reference_page_equals_the_live_help() -> None:
    recorded = house_reference.CLI_REFERENCE.read_text(encoding="utf-8")
    assert recorded == house_reference.cli_reference(), "docs/cli.md is out of date; run scripts/reference"


def test_the_reference_page_names_every_command() -> None:
    recorded = house_reference.CLI_REFERENCE.read_text(encoding="utf-8")
    for path in COMMANDS:
        if not path or app[path[0]].show:
            assert f"# {' '.join(('whet', *path))}\n" in recorded


def test_the_commands_are_listed_along_the_loop_and_earlier_names_work_unlisted() -> None:
    assert {name for names in LOOP.values() for name in names} == {
        name for name in app if app[name].show
    } - FLAGS
    hidden = {path for path in COMMANDS if path and not app[path[0]].show}
    assert hidden >= {(name,) for name in ("run_openevolve", "extract_targets", "parallel")} | {
        ("capture", "check")
    }
    start = [sys.executable, "-W", "error", "-c", "from whet.cli import main; main()", "--help"]
    done = subprocess.run(start, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    shown = [done.stdout.index(f"─ {title} ─") for title in LOOP]
    assert shown == sorted(shown)
    assert not any(f" {path[0]} " in done.stdout for path in hidden)


ALONE = """
import json, os, sys
import whet.cli

def words(parent, path):
    yield " ".join(path)
    for word in parent:
        if not word.startswith("-"):
            yield from words(parent[word], (*path, word))

for name in sys.argv[1:]:
    if (child := os.fork()) == 0:
        whet.cli.load([name])
        app = whet.cli.root.app
        print(json.dumps([name, list(words(app[name], (name,))), len(list(app))]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_command_with_all_its_own_is_there_without_the_others() -> None:
    """The command line imports what `HOMES` says of the first word."""
    assert HOMES.keys() == {name for names in LOOP.values() for name in names}
    start = [sys.executable, "-W", "error", "-c", ALONE, *HOMES]
    done = subprocess.run(start, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    alone = {name: (words, count) for name, words, count in map(json.loads, done.stdout.splitlines())}
    assert {name: words for name, (words, _) in alone.items()} == {
        name: [words_of(path) for path in commands(app[name], (name,))] for name in HOMES
    }
    assert alone["replay"][1] < len(list(app)) / 2, "the others were imported, too"


@pytest.mark.parametrize("path", [("train", "ppo"), ("evolve",), ("improve",), ("serve",)], ids=words_of)
def test_the_options_that_matter_first_stand_apart(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code([*path, "--help"])
    panels = capsys.readouterr().out.split("╭─ ")
    (first,) = [number for number, panel in enumerate(panels) if panel.startswith("Parameters")]
    options = [panel.count("\n│    --") + panel.count("\n│ --") + panel.count("\n│ *") for panel in panels]
    assert 4 <= options[first] <= 14
    assert sum(options[first + 1 :]) >= 4
