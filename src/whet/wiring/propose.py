"""The wiring of a repository as a proposal: at most three changed lines, or none, and a few new files.

Nothing of the user's is changed here.  `write` makes the new files (a configuration, a data folder that
git ignores, a step for continuous integration) and never writes over one that exists; the changed lines are
a patch for `git apply`.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..errors import InputError
from .scan import FRAMEWORKS, EntryPoint, Repository

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

    repository: Repository
    traced: tuple[EntryPoint, ...]
    """Functions that get `@whet.trace`; none where the gateway does it all."""
    diff: str
    """Unified diff for `git apply`, empty where no line changes."""
    files: Mapping[str, str]
    """Relative path → content of new files."""
    command: str
    """What to run to record the agent."""
    notes: tuple[str, ...] = ()

    @property
    def added_lines(self) -> int:
        """Lines that the diff adds."""
        return sum(line.startswith("+") and not line.startswith("+++") for line in self.diff.splitlines())

    def write(self) -> list[str]:
        """Make the new files; returns those made. One that exists is left as it is."""
        made = []
        for name, content in self.files.items():
            path = self.repository.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(content)
            except FileExistsError:
                continue
            made.append(name)
        return made


def propose(repository: Repository) -> Proposal:
    """Say how to record and improve what `scan` found.

    Raises:
        InputError: there is no agent here; says what was looked for and what to do.
    """
    if not repository.files:
        raise InputError(
            f"{repository.root} holds no Python file. Run this at the root of an agent's repository; an agent in "
            "another language is recorded with `whet run -- COMMAND`, and `whet demo` needs nothing at all."
        )
    if not repository.frameworks and not repository.entry_points:
        known = ", ".join(dict.fromkeys(FRAMEWORKS.values()))
        raise InputError(
            f"none of the {repository.files} Python files in {repository.root} calls a model or uses a framework "
            f"that is known here ({known}). Mark the function that answers with @whet.trace, or run the program "
            "behind the gateway: `whet run -- COMMAND`."
        )
    traced = _chosen(repository)
    diff = _diff(repository, traced) if not repository.wired else ""
    notes = [
        f"{one.path}:{one.line}: {one.name} is handed over when its module is imported; a candidate would not reach "
        "it. Build the agent in a function, or run it behind the gateway."
        for one in repository.prompts
        if one.at_import
    ]
    if repository.wired:
        notes.insert(0, f"{repository.wired} records with whet already: no line is proposed.")
    script = traced[0].path if traced else _script(repository)
    # Behind the gateway even where a line is added: the mark gives the run its bounds, the gateway its model calls.
    command = f"whet run --store {STORE} -- python {script}"
    return Proposal(
        repository, traced if diff else (), diff, _files(repository, traced), command, tuple(notes)
    )


def _chosen(repository: Repository) -> tuple[EntryPoint, ...]:
    """The entry points of one file that take something: two lines each file, one more for a second function."""
    able = [one for one in repository.entry_points if one.parameters]
    if not able:
        return ()
    path = able[0].path
    return tuple(one for one in able if one.path == path)[: LINES - 1]


def _script(repository: Repository) -> str:
    named = [one.path for one in repository.entry_points] + [one.path for one in repository.prompts]
    return named[0] if named else "YOUR_AGENT.py"


def _diff(repository: Repository, traced: tuple[EntryPoint, ...]) -> str:
    if not traced:
        return ""
    path = traced[0].path
    with (repository.root / path).open(encoding="utf-8", newline="") as file:
        text = file.read()
    lines = text.splitlines(keepends=True)
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    added = {one.line - 1: f'@whet.trace("{STORE}"){ending}' for one in traced}
    place = _import_line(ast.parse(text))
    changed: list[str] = []
    for number, line in enumerate([*lines, ""]):
        if number == place:
            changed.append(f"import whet{ending}")
        if number in added:
            changed.append(added[number])
        changed.append(line)
    made = difflib.unified_diff(lines, [line for line in changed if line], f"a/{path}", f"b/{path}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made
    )


def _import_line(tree: ast.Module) -> int:
    """Index of the line before which an import may stand: after the imports at the top, or the docstring."""
    after = 0
    for number, node in enumerate(tree.body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (docstring or isinstance(node, ast.Import | ast.ImportFrom)):
            break
        after = node.end_lineno or node.lineno
    return after


def _files(repository: Repository, traced: tuple[EntryPoint, ...]) -> dict[str, str]:
    configuration = {
        "store": STORE,
        "framework": repository.framework,
        "entry_points": [f"{_module(one.path)}:{one.name}" for one in traced or repository.entry_points],
        "prompts": [f"{one.path}:{one.line}:{one.name}" for one in repository.prompts],
        "tools": [f"{one.path}:{one.line}:{one.name}" for one in repository.tools],
    }
    text = msgspec.json.format(msgspec.json.encode(configuration), indent=2).decode() + "\n"
    workflows = ".github/workflows" if (repository.root / ".github").is_dir() else FOLDER
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


def source(path: Sequence[str] | None = None) -> str | None:
    """Where whet was installed from (PEP 610): None for an index, else a URL for pip; a repository's with its commit.

    Args:
        path: folders to look in; those of this Python if None.
    """
    from importlib.metadata import distributions  # slow to import, and seldom asked for

    for found in distributions(name="whet", path=list(sys.path if path is None else path)):
        body = found.read_text("direct_url.json")
        return None if body is None else _address(body)
    return None


def _address(body: str) -> str:
    told = msgspec.json.decode(body, type=_Source)
    if told.vcs_info is None:
        return told.url
    return f"{told.vcs_info.vcs}+{told.url}@{told.vcs_info.commit_id}"


class _Repository(msgspec.Struct):
    vcs: str
    commit_id: str


class _Source(msgspec.Struct):
    url: str
    vcs_info: _Repository | None = None


def installation(source: str | None) -> str:
    """The command that installs whet on a machine that has this repository and nothing else of ours.

    A folder or a file of this machine is none that another has: the variable that it asks for has to be set there.
    """
    if source is None:
        return "pip install whet"
    if not source.startswith("file:"):
        return f"pip install 'whet @ {source}'"
    asked = f"set the repository variable {VARIABLE} to where pip finds whet, such as git+https://HOST/PATH"
    return f'pip install "${{WHET_SOURCE:?{asked}}}"\n        env:\n          WHET_SOURCE: ${{{{ vars.{VARIABLE} }}}}'


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".").removeprefix("src.")
