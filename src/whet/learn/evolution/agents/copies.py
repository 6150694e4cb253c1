"""Copies of an agent's repository, one for each candidate, and how the agent runs in one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ....errors import InputError
from ....models.trial import trial_environment
from ....repository.files import SKIPPED
from .agent import RepositoryAgent
from .leading import leading_imports

_LARGEST = 256 << 20
"""Bytes of a repository: it is copied for every candidate."""
_OURS = ("WHET_BUNDLE", "WHET_STORE", "WHET_URL", "WHET_DEPLOYED")
"""With them a released text would stand in the place of the candidate's, and its calls be recorded as production."""

_OURSELVES = re.compile(r"^(?:import|from) whet\b", re.MULTILINE)
_MARKS = "from whet import trace"


@dataclass(frozen=True)
class AgentCopies:
    """What is copied of an agent.

    Raises:
        InputError: the repository is too large.
    """

    agent: RepositoryAgent
    without: Sequence[Path] = field(default=())
    """Folders that are left out, resolved."""

    def __post_init__(self) -> None:
        size = sum(path.stat().st_size for path in self._files())
        if size > _LARGEST:
            raise InputError(
                f"{self.agent.repository.root} holds {size >> 20} MiB and is copied for every candidate: give the "
                "folder of the agent alone as --repository"
            )

    def write(self, folder: Path, changed: Mapping[str, str] | None = None) -> None:
        """The repository in another folder, with these texts in it."""
        root = self.agent.repository.root
        for path in self._files():
            copied = folder / path.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            # A link is copied as its file: what an agent writes through it stays in the copy.
            shutil.copy2(path, copied)
        for name, text in (changed or {}).items():
            (folder / name).write_text(text, encoding="utf-8")

    def environment(self, folder: Path) -> dict[str, str]:
        """The environment of the agent in a copy."""
        outside = trial_environment(os.environ)
        environment = {key: value for key, value in outside.items() if key not in _OURS}
        paths = dict.fromkeys(map(str, self._places(folder)))
        environment["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
        return environment

    def imports(self, folder: Path) -> str:
        """What runs before the agent's own first line in a copy: imports of other packages."""
        assert self.agent.entry is not None
        module = self.agent.callees[self.agent.entry].entry.partition(":")[0]
        statements = leading_imports(module, [folder, *self._places(folder)])
        # Ours loads what a mark needs where the first one stands, and nothing in it depends on what ran until then.
        return f"{statements}\n{_MARKS}" if _OURSELVES.search(statements) else statements

    def _places(self, folder: Path) -> tuple[Path, ...]:
        agent = self.agent
        inside = agent.repository.base(agent.repository.root / agent.entry_path)
        return folder / inside.relative_to(agent.repository.root), folder, folder / "src"

    def _files(self) -> list[Path]:
        files = []
        skipped = {*SKIPPED, ".git", ".venv", ".tox", ".mypy_cache"}
        for above, folders, names in os.walk(self.agent.repository.root):
            here = Path(above)
            folders[:] = [
                folder for folder in folders if folder not in skipped and here / folder not in self.without
            ]
            files += [here / name for name in names if (here / name).is_file()]
        return files
