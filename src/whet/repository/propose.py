"""The wiring of a repository as a proposal: at most three changed lines, or none, and a few new files.

Nothing of the user's is changed here.  `write` makes the new files (a configuration, a data folder that
git ignores, a step for continuous integration) and never writes over one that exists; the changed lines are
a patch for `git apply`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..errors import InputError
from .modules import Repository
from .scan import FRAMEWORKS, EntryPoint, Scan
from .surroundings import PROGRAM, advice, start_of, surroundings
from .text import SourceText, Span, as_written, diff, plain

CONFIGURATION = "whet.json"
FOLDER = ".whet"
STORE = f"{FOLDER}/whet.db"
PATCH = f"{FOLDER}/wiring.patch"
VARIABLE = "WHET_SOURCE"
"""Of continuous integration: where it installs whet from, if here that was a folder."""
LINES = 3
"""Lines of the user's that may be added."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """How a repository could be wired."""

    scan: Scan
    traced: tuple[EntryPoint, ...]
    """Functions that get `@whet.trace`; none where the gateway records alone."""
    diff: str
    """Unified diff for `git apply`, empty where no line changes."""
    files: Mapping[str, str]
    """Relative path → content of new files."""
    command: str
    """The command that runs and records the agent."""
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """How its answers can be judged and it can be improved, a sentence each."""

    @property
    def added_lines(self) -> int:
        """Lines that the diff adds."""
        return sum(line.startswith("+") and not line.startswith("+++") for line in self.diff.splitlines())

    def write(self) -> list[str]:
        """Make the new files; returns those made. One that exists is left as it is."""
        written = []
        for name, content in self.files.items():
            path = self.scan.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(content)
            except FileExistsError:
                continue
            written.append(name)
        return written


def propose(scan: Scan) -> Proposal:
    """How to record and improve the agent of a repository.

    Raises:
        InputError: there is no agent here; names what was looked for and what to do.
    """
    around = surroundings(scan.root)
    if not scan.frameworks and not scan.entry_points and (around.notebooks or around.foreign):
        started = f"jupyter execute {around.notebooks[0]}" if around.notebooks else "COMMAND"
        command = f"whet run --store {STORE} -- {started}"
        return Proposal(scan, (), "", _files(scan, ()), command, advice=tuple(advice(around, "", STORE)))
    if not scan.files:
        raise InputError(
            f"{scan.root} holds no Python file. Run this at the root of an agent's repository; an agent in "
            "another language is recorded with `whet run -- COMMAND`, and `whet demo` needs nothing at all."
        )
    if not scan.frameworks and not scan.entry_points:
        frameworks = ", ".join(dict.fromkeys(FRAMEWORKS.values()))
        raise InputError(
            f"none of the {scan.files} Python files in {scan.root} calls a model or uses a framework "
            f"that is known here ({frameworks}). Mark the function that answers with @whet.trace, or run the program "
            "behind the gateway: `whet run -- COMMAND`."
        )
    traced = _chosen(scan)
    patch = _patch(scan, traced) if traced and not scan.wired else ""
    notes = [
        f"{prompt.path}:{prompt.line}: {prompt.name} is handed over when its module is imported; a candidate would "
        "not reach it. Build the agent in a function, or run it behind the gateway."
        for prompt in scan.prompts
        if prompt.at_import
    ]
    if scan.wired:
        notes.insert(0, f"{scan.wired} records with whet already: no line is proposed.")
    paths = [entry.path for entry in (*traced, *scan.entry_points)] + [prompt.path for prompt in scan.prompts]
    script = scan.caller or (paths[0] if paths else "YOUR_AGENT.py")
    # Behind the gateway even where a line is added: the mark gives the run its bounds, the gateway its model calls.
    command = f"whet run --store {STORE} -- {start_of(scan.root, script) if paths else f'python {script}'}"
    if PROGRAM in command:
        notes.append(
            f"{script} runs nothing by itself: start the program that calls it in the place of {PROGRAM}"
        )
    entry = next(iter((*traced, *scan.entry_points)), None)
    ways = advice(around, entry.path if entry is not None else "", STORE)
    return Proposal(
        scan, traced if patch else (), patch, _files(scan, traced), command, tuple(notes), tuple(ways)
    )


def _chosen(scan: Scan) -> tuple[EntryPoint, ...]:
    """The entry points of one file that have parameters: two lines each file, one more for a second function."""
    able = [entry for entry in scan.entry_points if entry.parameters]
    return tuple(entry for entry in able if entry.path == able[0].path)[: LINES - 1]


def _patch(scan: Scan, traced: tuple[EntryPoint, ...]) -> str:
    path = traced[0].path
    written = Repository(scan.root).written(path)
    source = SourceText(plain(written))
    changes: list[tuple[Span, str]] = [
        (source.lines(entry.line, entry.line - 1), f'{" " * entry.indent}@whet.trace("{STORE}")\n')
        for entry in traced
    ]
    line = _import_line(source)
    changes.append((source.lines(line, line - 1), "import whet\n"))
    return diff(path, written, as_written(written, source.spliced(changes)))


def _import_line(source: SourceText) -> int:
    """The line before which an import may stand: after the imports at the top, the docstring, or the header."""
    after = 0
    for number, node in enumerate(source.tree.body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (docstring or isinstance(node, ast.Import | ast.ImportFrom)):
            break
        after = node.end_lineno or node.lineno
    if not after:
        # `#!` counts in the first line only, and `# -*- coding` in the first two.
        while source.at(source.lines(after + 1, after + 1)).startswith("#"):
            after += 1
    return after + 1


def _files(scan: Scan, traced: tuple[EntryPoint, ...]) -> dict[str, str]:
    configuration = {
        "store": STORE,
        "framework": scan.framework,
        "entry_points": [f"{_module(entry.path)}:{entry.name}" for entry in traced or scan.entry_points],
        "prompts": [f"{prompt.path}:{prompt.line}:{prompt.name}" for prompt in scan.prompts],
        "tools": [f"{tool.path}:{tool.line}:{tool.name}" for tool in scan.tools],
    }
    text = msgspec.json.format(msgspec.json.encode(configuration), indent=2).decode() + "\n"
    workflows = ".github/workflows" if (scan.root / ".github").is_dir() else FOLDER
    return {
        CONFIGURATION: text,
        f"{FOLDER}/.gitignore": "# The record holds what users wrote: it stays on this machine.\n*\n",
        f"{workflows}/whet-check.yml": _WORKFLOW.replace("INSTALL", installation(source())),
    }


_WORKFLOW = """\
# Keeps the agent's wiring healthy: broken instrumentors, prompts that a candidate cannot reach.
name: whet
on: [push, pull_request]
jobs:
  doctor:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - run: INSTALL
      - run: whet doctor
"""


class _Commit(msgspec.Struct):
    vcs: str
    commit_id: str


class _DirectUrl(msgspec.Struct):
    url: str
    vcs_info: _Commit | None = None


def source(path: Sequence[str] | None = None) -> str | None:
    """The place whet was installed from (PEP 610): None for an index, else a URL for pip; git's with its commit.

    Args:
        path: folders to look in; those of this Python if None.
    """
    from importlib.metadata import distributions  # slow to import, and seldom needed

    for distribution in distributions(name="whet", path=list(sys.path if path is None else path)):
        body = distribution.read_text("direct_url.json")
        if body is None:
            return None
        direct = msgspec.json.decode(body, type=_DirectUrl)
        commit = direct.vcs_info
        return f"{commit.vcs}+{direct.url}@{commit.commit_id}" if commit else direct.url
    return None


def installation(source: str | None) -> str:
    """The command that installs whet on a machine that has this repository and nothing else of ours.

    Another machine does not have a folder or a file of this one, so the step asks for a variable to be set there.
    """
    if source is None:
        return "pip install whet"
    if not source.startswith("file:"):
        return f"pip install 'whet @ {source}'"
    request = f"set the repository variable {VARIABLE} to where pip finds whet, such as git+https://HOST/PATH"
    return f'pip install "${{WHET_SOURCE:?{request}}}"\n        env:\n          WHET_SOURCE: ${{{{ vars.{VARIABLE} }}}}'


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".").removeprefix("src.")
