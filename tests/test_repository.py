"""A repository is read by one reader: one list of what is skipped, one splicer, one form of a patch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import InputError
from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.agents.marks import marks
from whet.learn.evolution.agents.pieces import patch
from whet.repository.modules import LARGEST, Repository
from whet.repository.propose import propose
from whet.repository.scan import scan
from whet.repository.text import SourceText, as_written, diff, plain

AGENT = """import whet
from openai import OpenAI


@whet.evolve
def answer(question):
    return OpenAI().responses.create(input=question)
"""
SKIPPED = [
    "whet_output/best/best_program.py",
    "staged/answer/agent.py",
    ".git/hooks/agent.py",
    ".venv/lib/agent.py",
    "python3.12/lib/agent.py",
    "vendor/site-packages/agent.py",
    "node_modules/tool/agent.py",
    "build/lib/agent.py",
    "dist/agent.py",
    "__pycache__/agent.py",
]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


@pytest.mark.parametrize("name", SKIPPED)
def test_init_and_extract_targets_skip_the_same_files(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, AGENT)
    write(tmp_path / "python3.12" / "pyvenv.cfg", "")
    write(tmp_path / "staged" / "answer" / ".staged-by-whet", "")
    assert scan(tmp_path).files == 0
    assert marks(Repository(tmp_path)) == []
    write(tmp_path / "app" / "agent.py", AGENT)
    assert [entry.path for entry in scan(tmp_path).entry_points] == ["app/agent.py"]
    assert [mark.path for mark in marks(Repository(tmp_path))] == ["app/agent.py"]


def test_init_does_not_propose_to_decorate_output_of_whet(tmp_path: Path) -> None:
    write(tmp_path / "whet_output" / "best" / "best_program.py", AGENT)
    command = [sys.executable, "-m", "whet", "init", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "holds no Python file" in done.stderr
    write(tmp_path / "agent.py", AGENT.replace("@whet.evolve\n", "").replace("import whet\n", ""))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout)["entry_points"] == ["agent.py:4:answer"]


def test_tests_are_searched_for_targets_and_not_for_entry_points(tmp_path: Path) -> None:
    write(tmp_path / "tests" / "test_agent.py", AGENT)
    assert scan(tmp_path).files == 0
    assert [mark.path for mark in marks(Repository(tmp_path))] == ["tests/test_agent.py"]


def test_a_link_that_leaves_the_repository_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "outside" / "agent.py", AGENT)
    write(tmp_path / "inside" / "agent.py", AGENT)
    (tmp_path / "inside" / "linked.py").symlink_to("agent.py")
    (tmp_path / "inside" / "other.py").symlink_to(tmp_path / "outside" / "agent.py")
    (tmp_path / "inside" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "inside" / "gone.py").symlink_to("nowhere.py")
    assert [mark.path for mark in marks(Repository(tmp_path / "inside"))] == ["agent.py", "linked.py"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"print 'two'\n", "not valid Python"),
        (b"{{ cookiecutter.name }} = 1 +\n", "not valid Python"),
        (b"a = 1\x00", "null"),
        (b"# -*- coding: latin-1 -*-\na = '\xe9'\n", "utf-8"),
        (b"a = 1\n" * (LARGEST // 6 + 1), "larger than"),
        (b"(" * 5000 + b")" * 5000, ""),
    ],
    ids=["Python 2", "template", "null", "Latin 1", "large", "nested"],
)
def test_a_file_that_cannot_be_read_is_reported_and_the_rest_is_read(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "strange.py").write_bytes(content)
    write(tmp_path / "agent.py", AGENT)
    repository = Repository(tmp_path)
    assert [mark.name for mark in marks(repository)] == ["answer"]
    assert list(repository.problems) == ["strange.py"]
    assert reason in repository.problems["strange.py"]
    agent = scan(tmp_path)
    assert agent.unread == [f"strange.py: {repository.problems['strange.py']}"]
    assert [entry.name for entry in agent.entry_points] == ["answer"]


ODD = (
    "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n\x0c\nimport whet\n\x0cA = 'é\u2028'\n\n\n"
    "@whet.evolve\ndef f( x ):  # tabs\n\tif x:\n\t\treturn '\x0c', 'ü'  \n\treturn  2\n\t# of f\n# after f"
)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_patch_of_a_function_changes_its_own_bytes_alone(tmp_path: Path, mark: str, end: str) -> None:
    path = tmp_path / "odd.py"
    before = (mark + ODD).replace("\n", end).encode()
    path.write_bytes(before)
    agent = RepositoryAgent(tmp_path, ("f",))
    assert agent.start.text.startswith("def f( x ):  # tabs\n\tif x:\n")
    changed = agent.start.with_part(agent.start.main, agent.start.text.replace("return  2", "return  3"))
    (tmp_path / "p").write_bytes(patch(agent.pieces, changed, agent.repository.written).encode())
    apply(tmp_path)
    assert path.read_bytes() == before.replace(b"return  2", b"return  3")


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("header", ["", "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n"])
def test_the_lines_of_init_are_added_and_every_other_byte_stays(
    tmp_path: Path, mark: str, end: str, header: str
) -> None:
    body = "client = OpenAI()\n\x0c\ndef ask(q): # é\n\treturn client.responses.create(input=q)"
    text = mark + header + body
    before = text.replace("\n", end).encode()
    (tmp_path / "agent.py").write_bytes(before)
    (tmp_path / "p").write_bytes(propose(scan(tmp_path)).diff.encode())
    apply(tmp_path)
    after = (tmp_path / "agent.py").read_bytes()
    assert after.startswith((mark + header).replace("\n", end).encode() + f"import whet{end}".encode())
    added = (f"import whet{end}".encode(), f'@whet.trace(".whet/whet.db"){end}'.encode())
    assert after.replace(added[0], b"").replace(added[1], b"") == before
    assert all(line in after for line in added)


def apply(folder: Path) -> None:
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "p"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)


def test_spans_are_bytes_and_are_replaced_from_the_end_backwards() -> None:
    source = SourceText("\ufeffα = 'é'; β = [1,\r\n  2]\n")
    first, second = source.tree.body
    assert [source.segment(node) for node in (first, second)] == ["α = 'é'", "β = [1,\r\n  2]"]
    changes = [
        (source.span(first), "α = 1"),
        (source.span(second), "β = 'ö'"),
        (source.above(first), "# new\n"),
    ]
    assert source.spliced(changes) == "\ufeff# new\nα = 1; β = 'ö'\n"


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "", "  c"]), st.sampled_from(["\n", "\r\n"]))),
    st.sampled_from(["", "last"]),
    st.integers(0, 9),
)
def test_lines_that_stay_keep_their_ends(lines: list[tuple[str, str]], rest: str, index: int) -> None:
    old = "".join(text + end for text, end in lines) + rest
    assert as_written(old, plain(old)) == old
    after = plain(old).split("\n")
    after.insert(min(index, len(lines)), "new")
    written = as_written(old, "\n".join(after))
    assert plain(written).rstrip("\n") == "\n".join(after).rstrip("\n")
    # Equal lines may be taken for one another; only the new one is gained, and none is lost.
    assert abs(written.count("\r") - old.count("\r")) <= 1


@pytest.mark.parametrize("path", ["/etc/passwd", "../out.py", "a/../../b", "c:/x", "", "a\\b"])
def test_a_patch_cannot_leave_the_repository(path: str) -> None:
    with pytest.raises(InputError, match="relative to the repository"):
        diff(path, "a\n", "b\n")


def test_an_unchanged_file_has_an_empty_diff() -> None:
    assert diff("a.py", "A = 1\n", "A = 1\n") == ""
