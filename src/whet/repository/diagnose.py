"""Obstacles between an agent and its record: missing packages, broken instrumentors, prompts out of reach.

Versions are read from the metadata of the packages installed beside whet; nothing is imported.  An instrumentor
is called broken when the package that it says it can instrument is installed in a version that it excludes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..escapes import read_json
from .propose import CONFIGURATION, PATCH, STORE
from .scan import Scan

LOW_DISK = 1_000_000_000
"""Bytes of free disk under which a record is warned about."""
_INSTRUMENTORS = (
    "openinference-instrumentation",
    "opentelemetry-instrumentation",
    "opentelemetry-util-genai",
)
_SERVER = ("aiohttp",)


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one part of the setup, with a fix where it needs one."""

    level: Literal["ok", "warning", "error"]
    what: str
    fix: str = ""


def diagnose(
    scan: Scan,
    *,
    installed: Iterable[metadata.Distribution] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Look at a repository and at the Python that whet runs in.

    Args:
        installed: the distributions to look at; those of this Python if None.
        environment: its variables; this process's if None.
    """
    distributions: dict[str, metadata.Distribution] = {
        canonicalize_name(distribution.metadata["Name"]): distribution
        for distribution in (metadata.distributions() if installed is None else installed)
        if distribution.metadata["Name"]
    }
    return [
        Finding("ok", f"Python {'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}"),
        *_store(scan.root),
        *_wired(scan),
        *_instrumentors(distributions),
        *_content(distributions, os.environ if environment is None else environment),
        _server(distributions),
    ]


def _store(root: Path) -> Iterator[Finding]:
    path = root / CONFIGURATION
    name = STORE
    if not path.exists():
        yield Finding("warning", f"there is no {CONFIGURATION} here", "whet init")
    else:
        try:
            settings = read_json(msgspec.json.Decoder(dict[str, object]).decode, path.read_bytes())
            name = str(settings.get("store") or STORE)
        except (msgspec.DecodeError, msgspec.ValidationError, OSError) as error:
            yield Finding(
                "error", f"{CONFIGURATION} cannot be read: {error}", "mend it, or delete it and: whet init"
            )
            return
    parent = (root / name).parent
    folder = next(path for path in (parent, *parent.parents) if path.exists())
    if not folder.is_dir():
        yield Finding(
            "error", f"{folder} is a file where the folder of the record {name} should be", "move it away"
        )
        return
    if not os.access(folder, os.W_OK):
        yield Finding(
            "error", f"no permission to write {folder}, where the record {name} goes", "choose another store"
        )
        return
    free = shutil.disk_usage(folder).free
    level: Literal["ok", "warning"] = "warning" if free < LOW_DISK else "ok"
    yield Finding(
        level, f"the record {name} can be written; {free / 1e9:.1f} GB free", "free space" * (level != "ok")
    )


def _wired(scan: Scan) -> Iterator[Finding]:
    if scan.framework is None and not scan.entry_points:
        yield Finding("warning", "no agent was found here", "run this at the root of the agent's repository")
    elif scan.wired:
        yield Finding("ok", f"{scan.framework or 'the agent'} is wired: {scan.wired} records with whet")
    else:
        name = scan.framework or "an agent that calls a model"
        wire = f"git apply {PATCH}" if (scan.root / PATCH).is_file() else "whet init"
        yield Finding("warning", f"{name} is not recorded", f"{wire}, or: whet run -- COMMAND")
    for unread in scan.unread:
        yield Finding("warning", f"not read: {unread}")
    for prompt in scan.prompts:
        if prompt.at_import:
            yield Finding(
                "warning",
                f"{prompt.path}:{prompt.line}: prompt {prompt.name} is read when its module is imported",
                "build the agent inside a function and read whet.resource(...) there, or use the gateway",
            )


def _instrumentors(distributions: Mapping[str, metadata.Distribution]) -> Iterator[Finding]:
    for name, distribution in sorted(distributions.items()):
        if not name.startswith(_INSTRUMENTORS):
            continue
        broken = list(_conflicts(distribution, distributions))
        for requirement, version in broken:
            yield Finding(
                "error",
                f"{name} {distribution.version} cannot work with {requirement.name} {version}: "
                f"it needs {requirement.name}{requirement.specifier}",
                f"pip install '{requirement.name}{requirement.specifier}', another {name}, or the gateway: "
                "whet run -- COMMAND",
            )
        if not broken:
            yield Finding("ok", f"{name} {distribution.version} fits what is installed")


def _conflicts(
    distribution: metadata.Distribution, distributions: Mapping[str, metadata.Distribution]
) -> Iterator[tuple[Requirement, str]]:
    for text in distribution.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        # An instrumentor does not require the package that it instruments; by convention an extra names it.
        if requirement.marker and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", "instruments", "instruments-any")
        ):
            continue
        instrumented = distributions.get(canonicalize_name(requirement.name))
        # Without `prereleases` a specifier excludes every pre-release, also one that is installed and meant.
        if instrumented is not None and not requirement.specifier.contains(
            instrumented.version, prereleases=True
        ):
            yield requirement, instrumented.version


def _content(
    distributions: Mapping[str, metadata.Distribution], environment: Mapping[str, str]
) -> Iterator[Finding]:
    variable = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    without = not environment.get(variable) or environment[variable].lower() in ("false", "no_content")
    if "opentelemetry-instrumentation-openai-v2" in distributions and without:
        yield Finding(
            "warning", "opentelemetry-instrumentation-openai-v2 records no messages", f"set {variable}=true"
        )
    endpoint = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environment.get(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    )
    exporters = [name for name in distributions if name.startswith("opentelemetry-exporter-otlp-proto")]
    if any(name.startswith(_INSTRUMENTORS) for name in distributions):
        if not exporters:
            yield Finding(
                "error",
                "an instrumentor is installed, and nothing that exports its spans",
                "pip install opentelemetry-exporter-otlp-proto-http",
            )
        elif endpoint:
            yield Finding("ok", f"spans go to {endpoint}")
        else:
            yield Finding(
                "warning",
                "spans go nowhere: OTEL_EXPORTER_OTLP_ENDPOINT is not set",
                "whet run -- COMMAND sets it, or set it to the address that whet serve prints",
            )


def _server(distributions: Mapping[str, metadata.Distribution]) -> Finding:
    missing = [name for name in _SERVER if name not in distributions and find_spec(name) is None]
    if missing:
        return Finding(
            "warning", f"`whet serve` and `whet run` lack {', '.join(missing)}", "pip install 'whet[server]'"
        )
    return Finding("ok", "`whet serve` and `whet run` can start")
