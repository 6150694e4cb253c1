"""Targets are found and sliced without importing anything; the slices run alone, and hold nothing else."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import whet
from whet.cli import main
from whet.errors import InputError
from whet.learn.evolution.agents.extract import Slice, described, extract, stage

FIXTURE = Path(__file__).parent / "fixtures" / "targets" / "repository"
CALLS = {
    "reduced": "reduced(400), reduced(501)",
    "with_rate": "[with_rate(100, country) for country in ('de', 'ch', 'us', 'fr')]",
    "with_tax": "with_tax(100)",
    "circle": "circular(12)",
    "choose": "choose('I want it BACK'), choose('buy'), choose('?')",
    "emphasise": "emphasise('a')",
    "greeting": "GREETING",
    "limits": "LIMITS",
    "letter": "Manager('Ann').letter('Bo')",
    "made": "Manager.made('Ann')",
    "fetch": "__import__('asyncio').run(fetch(4))",
    "decorated": "decorated('a')",
    "from_file": "from_file('usd')",
    "lazily": "lazily(1.01)",
    "parsed": "parsed('[1]'), parsed('2', at=Point(5, 6))",
    "counted": "counted(), counted()",
    "shadowed": "shadowed([1], 2)",
    "closure": "closure(1)",
    "by_name": "by_name('json', '[3]')",
    "handed": "handed('abc')",
    "scripted": "main(1.5)",
    "rules": "RULES",
}
"""Target → expressions over what its module defines."""

SLICES, MARKS, PROBLEMS = extract(FIXTURE)
BY_NAME = {each.mark.name: each for each in SLICES}


def said(found: Slice, folder: Path, *, more: tuple[str, ...] = ()) -> str:
    """What the expressions come to with only `folder` (and `more`) on the path; "" if that fails."""
    module, _, qualname = found.entry.partition(":")
    name = qualname.split(".")[0]
    text = (
        f"import sys; sys.path[:0] = {[str(folder), *more]!r}\n"
        f"from {module} import *; from {module} import {name}\nprint(repr(({CALLS[found.mark.name]},)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", text], cwd=folder, capture_output=True, text=True, timeout=300
    )
    return done.stdout.splitlines()[-1] if done.returncode == 0 else ""


def without(folder: Path, found: Slice, dependency: str) -> bool:
    """Cut what binds a dependency out of the staged copy; False if it binds nothing of its own there."""
    module, _, name = dependency.partition(":")
    place = folder / Path(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    tree = ast.parse("".join(lines))
    cut = [node for node in tree.body if name in _binds(node)]
    for node in cut:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        for line in range(first - 1, node.end_lineno or node.lineno):
            lines[line] = "\n"
    path.write_text("".join(lines), encoding="utf-8")
    return bool(cut)


def _binds(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def test_every_mark_of_the_fixture_is_found_with_its_kind_and_metric() -> None:
    found = {(each.name, each.kind, each.metric, each.how) for each in MARKS}
    assert len(MARKS) == len(found) >= 25
    assert {
        ("choose", "router", "accuracy", "decorator"),
        ("letter", "executor", None, "decorator"),
        ("fetch", "tool", None, "decorator"),
        ("greeting", "prompt", "tone", "comment"),
        ("rules", "prompt", None, "comment"),
        ("limits", "planner", None, "comment"),
        ("system_prompt", "prompt", None, "resource"),
        ("weather", "tool", None, "schema"),
        ("search", "tool", None, "schema"),
        ("refunds", "skill", None, "skill"),
        ("scripted", "flow", None, "decorator"),
    } <= found
    assert {each.name for each in MARKS if each.how in ("decorator", "comment")} == set(CALLS)


def test_a_mark_knows_where_it_stands() -> None:
    lines = {each.name: (FIXTURE / each.path).read_text().splitlines()[each.line - 1] for each in MARKS}
    assert lines["choose"].startswith("def choose")
    assert lines["letter"].strip().startswith("def letter")
    assert lines["fetch"].startswith("async def fetch")
    assert lines["greeting"].startswith("GREETING")


def test_what_cannot_be_read_is_said_and_the_rest_is_read() -> None:
    assert set(PROBLEMS) == {"broken.py"}
    assert "not valid Python" in PROBLEMS["broken.py"]


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_staged_target_runs_alone_as_it_does_in_its_repository(name: str, tmp_path: Path) -> None:
    found = BY_NAME[name]
    staged = stage(found, tmp_path / "staged")
    package = str(Path(whet.__file__).parents[1])
    here = said(found, FIXTURE, more=(package, *(path for path in sys.path if "site-packages" in path)))
    assert here, "the fixture itself does not run"
    assert said(found, staged) == here
    for place, text in found.files.items():
        assert place.endswith(("__init__.py", ".json")) or text, f"{place} is staged for nothing"


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"scripted"}))
def test_without_any_one_of_its_dependencies_it_does_not(name: str, tmp_path: Path) -> None:
    found = BY_NAME[name]
    whole = said(found, stage(found, tmp_path / "whole"))
    for number, dependency in enumerate(found.dependencies):
        if dependency in NOT_USED_BY_THE_CALLS.get(name, ()):
            continue
        staged = stage(found, tmp_path / str(number))
        if without(staged, found, dependency):
            assert said(found, staged) != whole, f"{dependency} is not needed"


NOT_USED_BY_THE_CALLS = {
    # A class is taken whole, so are the names that only its other methods use.
    "reduced": ("shop.pricing.rules:r",),
    "letter": (),
    "made": ("shop.agents.prompts:Clerk", "shop.agents.prompts:TONE"),
    "handed": ("lib.text:SUFFIX",),
}


def test_a_slice_holds_nothing_that_is_not_needed() -> None:
    staged = "\n".join(text for text in BY_NAME["with_rate"].files.values() if isinstance(text, str))
    for name in ("never_called", "UNUSED", "VERSION", "OTHER", "Rule:", "taxes"):
        assert name not in staged
    assert 'TABLE["us"] = 1.1' in staged
    assert "# as of today" in staged
    assert "# through an alias of a module" in staged
    assert "other.json" not in str(BY_NAME["from_file"].files)
    assert "print" not in str(BY_NAME["scripted"].files["script.py"])


def test_a_re_export_is_followed_to_where_the_thing_is_defined() -> None:
    assert {"shop.core:Money", "shop.core.money:Money"} <= set(BY_NAME["with_rate"].dependencies)
    assert "shop.core._text:_mark" in BY_NAME["emphasise"].dependencies
    router = BY_NAME["emphasise"].files["shop/agents/router.py"]
    assert "from ..core._text import _mark, shout" in str(router), "a star becomes the names it must bring"


def test_a_name_that_only_shadows_a_global_is_not_followed() -> None:
    assert BY_NAME["shadowed"].dependencies == ("shop.agents.tools:shadowed",)


def test_what_depends_on_run_time_is_said_not_guessed() -> None:
    assert any("import_module" in reason for reason in BY_NAME["by_name"].unsure)
    assert any("lib.text" in reason and "as a value" in reason for reason in BY_NAME["handed"].unsure)
    assert any("shop" in reason for reason in BY_NAME["scripted"].unsure)
    quiet = set(CALLS) - {"by_name", "handed", "scripted"}
    assert {name: BY_NAME[name].unsure for name in quiet if BY_NAME[name].unsure} == {}


def test_nothing_of_the_repository_is_imported(tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(
        "import whet\nopen('sprung', 'w').close()\nraise SystemExit(9)\n\n\n@whet.evolve\ndef f():\n    return 1\n"
    )
    (found,), _, _ = extract(tmp_path)
    assert not (tmp_path / "sprung").exists()
    assert "sprung" not in str(found.files)
    assert found.requirements == ()


def test_an_installed_package_is_named_as_a_requirement(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import json\nimport numpy as np\nfrom whet import evolve\n\n\n"
        "@evolve\ndef f(x):\n    return np.abs(json.loads(x))\n"
    )
    (found,), _, _ = extract(tmp_path)
    assert found.requirements == ("numpy",)


def test_the_command_lists_and_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["extract-targets", str(FIXTURE), "--output", str(tmp_path), "--json"])
    assert done.value.code == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["targets"]) == len(MARKS)
    assert data["not_read"].keys() == {"broken.py"}
    (row,) = [each for each in data["targets"] if each["name"] == "choose"]
    assert os.path.samefile(row["staged"], tmp_path / "choose")
    kept = json.loads((tmp_path / "choose" / "target.json").read_text())
    assert kept == described(BY_NAME["choose"])
    assert kept["entry"] == "shop.agents.router:choose"


def test_what_was_staged_inside_the_repository_is_no_target_of_it(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import whet\n\n\n@whet.evolve\ndef f():\n    return 1\n")
    (found,) = extract(tmp_path)[0]
    stage(found, tmp_path / "staged")
    shutil.copy(tmp_path / "one.py", tmp_path / "staged" / "f")  # with its mark, as a data file may have one
    assert [each.entry for each in extract(tmp_path)[0]] == ["one:f"]


def test_a_folder_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError):
        extract(tmp_path / "nowhere")
    with pytest.raises(SystemExit) as done:
        main(["extract-targets", str(tmp_path / "nowhere")])
    assert done.value.code == 2
    assert "nowhere" in capsys.readouterr().err


def test_two_targets_of_one_name_are_staged_apart(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    for name in ("one", "two"):
        text = f"import whet\n\n\n@whet.evolve\ndef f():\n    return {name!r}\n"
        (tmp_path / "repository" / f"{name}.py").write_text(text)
    places = [stage(found, tmp_path / "staged") for found in extract(tmp_path / "repository")[0]]
    assert len(set(places)) == 2
    assert [json.loads((place / "target.json").read_text())["entry"] for place in places] == [
        "one:f",
        "two:f",
    ]


def test_without_marks_it_proposes_what_to_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agent.py").write_text(
        'SYSTEM_PROMPT = "You are a clerk. Answer the question in one word."\nGREETING = "hello"\nLIMIT = 5\n'
        "RATES = {'eu': 1.5, 'us': 2.0}\nlogger = 3\n"
        "def route(text: str) -> str:\n    return 'urgent' if 'now' in text else 'later'\n"
        "def _hidden(x):\n    return x if x > 1 else 0\n"
        "def main():\n    print(route('now'))\n"
    )
    (tmp_path / "test_agent.py").write_text('PROMPT = "You are a test and nobody reads this text."\n')
    with pytest.raises(SystemExit) as done:
        main(["extract-targets", str(tmp_path), "--json"])
    assert done.value.code in (0, None)
    proposed = json.loads(capsys.readouterr().out)["proposed"]
    assert [(one["name"], one["kind"], one["line"]) for one in proposed] == [
        ("SYSTEM_PROMPT", "prompt", 1),
        ("LIMIT", "flow", 3),
        ("RATES", "flow", 4),
        ("route", "function", 6),
    ]
    # What it says to do makes a target of it.
    text = (tmp_path / "agent.py").read_text()
    (tmp_path / "agent.py").write_text("# whet: evolve kind=prompt\n" + text)
    with pytest.raises(SystemExit):
        main(["extract-targets", str(tmp_path)])
    said = capsys.readouterr().out
    assert "SYSTEM_PROMPT".lower() in said
    assert "a table of" not in said
