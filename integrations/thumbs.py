"""What the frameworks' check.py do beside recording: from thumbs to a prompt that is proven, live, and rolled back."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "claims"))
from newcomers_frameworks import try_framework


def improved(framework: str, python: str) -> None:
    """An agent of this framework that knows nothing of whet gets better by people's thumbs.

    Args:
        python: of the environment with the framework and whet.
    """
    with tempfile.TemporaryDirectory() as name:
        trial, lines = try_framework(framework, Path(python), Path(name) / "desk", 0)
    assert all(lines.values()), f"{lines}\n{trial}"
    print(f"{framework}: thumbs end in a prompt that is live: {trial.before:.2f} → {trial.after:.2f} right")
