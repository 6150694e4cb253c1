"""Files of YAML, read without running anything that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InputError, MissingExtra


def read_yaml(path: Path, text: str) -> Any:
    """The value of a text in YAML.

    Args:
        path: of the file that it stands in.

    Raises:
        InputError: it is not YAML.
        MissingExtra: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise MissingExtra("yaml", "evolve") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {error}") from error
