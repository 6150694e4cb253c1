"""The targets in somebody's repository: the pieces that may change, the functions that call them, and their rows.

Targets are found by name among the marks, or given as `module:function`.  Several pieces are judged
through one entry, the function that uses them all; a piece that has rows of its own is judged by
those first.  Everything is read as text; nothing of the repository is imported.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath

from ....errors import InputError, NotFoundError
from ....record.columns import ColumnNames
from ....repository.modules import LARGEST, Repository
from ....repository.prompt_files import NESTED, WHOLE
from ....repository.syntax import FunctionNode, definition
from ....types import Task, digest
from ...datasets.callee import Callee
from ...datasets.examples import load
from ..editing.program import Program
from .extract import slice_of
from .marks import Mark, marks
from .outside import CallTarget
from .pieces import Piece, cut, program_of, replaced, stage

DATA_FILES = (".json", ".csv", ".tsv", ".yaml", ".yml", ".toml", ".ini")
"""Ends of the files of values that may change whole."""
_EXAMPLES = re.compile(r"prompt|example|shot|demonstration", re.IGNORECASE)
"""In the paths of lines of JSON that an agent reads and does not write: the examples that its model is shown."""
DATA = "whet_data"
"""Folder in which each target has its rows, unless another is named."""


def holds_values(path: PurePath) -> bool:
    """True for a file, by its path in the repository, that holds values or examples and may change whole.

    Other lines of JSON are what an agent writes: a log would be another source with every run.
    """
    if path.suffix.lower() == ".jsonl":
        return _EXAMPLES.search(path.as_posix()) is not None
    return path.suffix.lower() in DATA_FILES


def _defines(tree: ast.Module, qualname: str) -> bool:
    """True if a module defines a function of this name."""
    try:
        return isinstance(definition(tree, qualname)[0], FunctionNode)
    except NotFoundError:
        return False


@dataclass
class RepositoryAgent:
    """The targets of a repository, ready to be built and called.

    Raises:
        InputError: a target that cannot be cut out, called, or reached from the entry.
        NotFoundError: no such target; says which there are.
    """

    root: Path
    names: Sequence[str]
    entry_name: str | None = None
    network: bool = False
    """The entry runs outside, with its network: it is not sliced, and may use every piece of the repository."""
    repository: Repository = field(init=False)
    known: list[Mark] = field(init=False)
    pieces: list[Piece] = field(init=False)
    callees: dict[str, Callee] = field(default_factory=dict)
    """Name → function, of the targets that are functions, and of the entry."""
    entry: str | None = None
    """Name of the function that everything is judged through."""
    entry_path: str = ""
    """File of an entry that runs outside."""

    def __post_init__(self) -> None:
        self.repository = Repository(self.root.resolve())
        self.known = marks(self.repository)
        chosen = [self.mark(name) for name in dict.fromkeys(self.names)]
        self.pieces = [cut(mark, self.repository.text(mark.path)) for mark in chosen]
        for mark in chosen:
            if self._callable(mark):
                self.callees[mark.name] = self.callee(mark)
        # After the loop: `_entry` asks which of the functions reach every piece.
        self.entry = self._outside() if self.network else self._entry()
        if self.entry is not None and not self.network:
            self.target(self.entry).build(self.start)  # says at once what cannot be reached

    def called(self, name: str) -> Callee:
        """The function of that name, or of the form `module:function`.

        Raises:
            InputError: the target is not a function, so nothing can be called.
            NotFoundError: no such target.
        """
        mark = self.mark(name)
        if not self._callable(mark):
            raise InputError(
                f"{mark.name} is not a function: name the function that uses it, as module:function"
            )
        return self.callees.setdefault(mark.name, self.callee(mark))

    def texts(self) -> dict[str, str]:
        """Path → text, of every Python file of the repository that can be read."""
        loaded = [self.repository.load(path) for path in self.repository.files(".py")]
        return {module.path.as_posix(): module.text for module in loaded if module is not None}

    @property
    def source(self) -> str:
        """Digest of all that it answers by: its Python files, and the files of values and texts beside them."""
        beside = {
            self.repository.relative(path): hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
            for path in self.repository.paths
            if (
                holds_values(relative := path.relative_to(self.repository.root))
                or relative.suffix.lower() in WHOLE
            )
            and path.stat().st_size <= LARGEST
        }
        return digest([self.texts(), beside], 16)

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Name → module, of every Python file of the repository that can be read."""
        loaded = [self.repository.load(path) for path in self.repository.files(".py")]
        return {module.name: module.tree for module in loaded if module is not None}

    @property
    def start(self) -> Program:
        """The pieces as they stand."""
        return program_of(self.pieces)

    def mark(self, name: str) -> Mark:
        """The target of that name: `module:function`, a file of values or a prompt by its path, or `path:key`."""
        path, _, key = name.partition(":")
        if self._is_text(path, key):
            return Mark(name, "prompt", path, 1, key, how="file")
        if ":" in name:
            return self._direct(name)
        if holds_values(Path(name)) and (self.repository.root / name).is_file():
            # Whole, as a skill is: a table of values beside the code.
            return Mark(name, "data", name, 1, how="skill")
        marks = [mark for mark in self.known if mark.name == name]
        if len(marks) == 1:
            return marks[0]
        if marks:
            lines = ", ".join(f"{mark.path}:{mark.line}" for mark in marks)
            raise InputError(f"{len(marks)} targets are called {name!r} ({lines}): give one as module:name")
        names = ", ".join(dict.fromkeys(mark.name for mark in self.known)) or "none"
        raise NotFoundError(
            f"no target {name!r} in {self.root}; there are: {names}. A function that is not marked is named by its "
            f"module: MODULE:{name}"
        )

    def _direct(self, name: str) -> Mark:
        dotted, _, qualname = name.partition(":")
        inside = Path(*dotted.removesuffix(".py").replace("/", ".").split("."))
        if not inside.name or not qualname:
            raise InputError(f"{name!r} names no target; give it as module:function or path.py:function")
        paths = {dotted}  # a file that is not Python is named by its path
        tried = set[str]()
        for base in (self.repository.root, self.repository.root / "src"):
            for path in (base / inside.with_suffix(".py"), base / inside / "__init__.py"):
                module = self.repository.load(path) if path.is_file() else None
                if module is None:
                    tried.add(self.repository.relative(path))
                    continue
                relative = module.path.as_posix()
                paths.add(relative)
                for mark in self.known:
                    # What a tool says of itself is named by the tool's name; `module:function` is what it does.
                    if (mark.path, mark.qualname) == (relative, qualname) and mark.how != "schema":
                        return mark
                text = self._named(paths, qualname)
                if text is None or _defines(module.tree, qualname):
                    node, _ = definition(module.tree, qualname)
                    own = qualname.split(".")[-1].lower()
                    if isinstance(node, FunctionNode) and self._alike(own):
                        own = f"{module.name}.{qualname}".lower()
                    return Mark(own, "function", relative, node.lineno, qualname)
        text = self._named(paths, qualname)
        if text is not None:
            return text
        unread = [f"{path} is {why}" for path, why in self.repository.problems.items() if path in tried]
        raise NotFoundError(
            "; ".join(unread)
            or f"{self.root} has no module {dotted!r}; give it as module:function or path.py:function"
        )

    def _named(self, paths: Collection[str], name: str) -> Mark | None:
        """A text of one of these files by its own name: a tool's description, a resource, a skill."""
        return next((mark for mark in self.known if mark.path in paths and mark.name == name), None)

    def _alike(self, own: str) -> bool:
        """True if several targets, the entry included, are called so in their modules: none of them is told by it."""
        names = {*self.names, self.entry_name or ""}
        return sum(name.rpartition(":")[2].split(".")[-1].lower() == own for name in names) > 1

    def _is_text(self, path: str, key: str) -> bool:
        """True for a file that is a prompt, or the key of one that holds some; tools and skills are marked already."""
        suffix = Path(path).suffix.lower()
        return (
            suffix in (NESTED if key else WHOLE)
            and (self.repository.root / path).is_file()
            and not any(mark.path == path and mark.name in (key, path) for mark in self.known)
        )

    def _callable(self, mark: Mark) -> bool:
        if not mark.qualname or not mark.path.endswith(".py"):
            return False
        module = self.repository.load(self.repository.root / mark.path)
        if module is None:
            raise InputError(f"{mark.path}: {self.repository.problems[mark.path]}")
        node, _ = definition(module.tree, mark.qualname)
        return isinstance(node, FunctionNode)

    def callee(self, mark: Mark) -> Callee:
        """The function that a mark names, with what it needs."""
        extract = slice_of(self.repository, mark)
        return Callee(mark.name, extract.entry, extract.files)

    def _outside(self) -> str:
        """The entry of an agent that keeps its network.

        Raises:
            InputError: none is named, or it is one of the targets.
        """
        if self.entry_name is None:
            raise InputError(
                "an agent that keeps its network is called through --entry module:function: give one"
            )
        mark = self.mark(self.entry_name)
        if not self._callable(mark):
            raise InputError(f"{mark.name} is not a function: name the one that is called with a row's input")
        if any(piece.mark.name == mark.name and piece.code for piece in self.pieces):
            raise InputError(
                f"{mark.name} runs outside of the sandbox with its network, so its own code does not evolve: "
                "give the prompts and functions that it uses as --target"
            )
        module = self.repository.load(self.repository.root / mark.path)
        assert module is not None
        path = "/".join(module.name.split(".")) + ("/__init__.py" if module.package else ".py")
        self.callees[mark.name] = Callee(mark.name, f"{module.name}:{mark.qualname}", {path: module.text})
        self.entry_path = mark.path
        return mark.name

    def _entry(self) -> str | None:
        """The entry that was named; else the only target, or the one that uses all others."""
        if self.entry_name is not None:
            return self.called(self.entry_name).name
        if len(self.pieces) == 1 and self.callees:
            return next(iter(self.callees))
        for name in self.callees:
            if all(self.reaches(name, piece) for piece in self.pieces):
                return name
        judged_through = next((piece for piece in self.pieces if piece.mark.name not in self.callees), None)
        if judged_through is not None:
            users = ", ".join(self._users(judged_through)) or "none is marked"
            raise InputError(
                f"{judged_through.mark.name} is not a function, so it is judged through one that uses it: give --entry "
                f"module:function. Marked functions that use it: {users}"
            )
        return None

    def reaches(self, name: str, piece: Piece) -> bool:
        """True if the function uses the piece, as far as its text shows."""
        if self.network and name == self.entry:
            return True
        path = self.places.get(piece.mark.path)
        files = self.callees[name].files
        if path is None or path not in files:
            return False
        staged = files[path]
        try:
            stage([piece], program_of([piece]).with_part(piece.part, piece.text), files, self.places)
            replaced(
                [piece], _touched(piece), lambda _: staged if isinstance(staged, str) else staged.decode()
            )
        except InputError:
            return False
        return True

    def _users(self, piece: Piece) -> list[str]:
        """Marked functions that use a piece."""
        users: list[str] = []
        for mark in self.known:
            if mark.how == "decorator" and mark.name not in users:
                self.callees[mark.name] = self.callee(mark)
                if self.reaches(mark.name, piece):
                    users.append(mark.name)
                # Only asked for: `rows` looks for a folder of each function in `callees`.
                del self.callees[mark.name]
        return users

    @property
    def places(self) -> Mapping[str, str]:
        """Path in the repository → path in a staged folder."""
        staged_paths = {}
        for mark in [*self.known, *(piece.mark for piece in self.pieces)]:
            path = self.repository.root / mark.path
            staged_paths[mark.path] = path.relative_to(self.repository.base(path)).as_posix()
        return staged_paths

    def target(
        self, name: str, pieces: Sequence[Piece] | None = None, rest: Program | None = None
    ) -> CallTarget:
        """A function, for candidates of these pieces.

        Args:
            pieces: of a candidate; all if None.
            rest: has the other pieces; they are as they stand if None.

        Raises:
            InputError: the function does not use one of the pieces.
        """
        callee = self.callees[name]
        mine = list(self.pieces if pieces is None else pieces)
        missing = [piece.mark.name for piece in mine if not self.reaches(name, piece)]
        if missing:
            raise InputError(
                f"{name} does not use {', '.join(missing)}, as far as its text shows: give a function that uses all "
                "targets as --entry"
            )
        base, places = rest or self.start, self.places
        reached = [piece for piece in self.pieces if self.reaches(name, piece)]

        def whole(program: Program) -> Program:
            return Program({**base.parts, **program.parts}, base.main)

        def build(program: Program) -> Mapping[str, str | bytes]:
            return stage(reached, whole(program), callee.files, places)

        return CallTarget(name, callee.entry, callee.signature, build, whole)

    def rows(
        self,
        path: Path,
        *,
        seed: int,
        note: Callable[[str], None] | None = None,
        columns: ColumnNames | None = None,
    ) -> dict[str, list[Task]]:
        """Target → its rows, of those that have any: a folder for each below `path`, or one file for the entry.

        Args:
            note: called with a sentence on the rows that were merged and left out.
            columns: of a file of rows.

        Raises:
            NotFoundError: there are none.
            InputError: a row that no function of these takes.
        """
        names = list(self.callees)
        if path.is_file() or (path / "train.jsonl").is_file():
            if self.entry is None:
                raise InputError(f"{path} holds rows of one function: give a folder with one for each target")
            rows = {self.entry: load(path, seed=seed, note=note, names=columns)}
        else:
            folders = [name for name in self.callees if (path / name).is_dir()]
            rows = {name: load(path / name, seed=seed, note=note) for name in folders}
        if not rows:
            names = list(self.callees)
            asked_for = [name for name in (*self.names, self.entry_name or "") if name]
            functions = [name for name in asked_for if self.mark(name).name in names] or names
            raise NotFoundError(
                f"there are no rows at {path} for {' or '.join(names)}. Make some: whet generate-training-data "
                f"--target {functions[0]} --num-samples 60"
            )
        for name, own in rows.items():
            for row in own:
                # For its refusal: a row that the function does not take is named before anything is spent.
                self.callees[name].signature.arguments(row.initial_state["input"])
        return {
            name: [replace(row, initial_state={"function": name, **row.initial_state}) for row in own]
            for name, own in rows.items()
        }


def _touched(piece: Piece) -> Program:
    """The piece with a change: an unchanged one would be put back without a look at the file."""
    more = f"\n# {piece.mark.name}\n" if piece.code else " "
    return Program({piece.part: piece.text + more}, piece.part)
