"""What every test may ask for: the repository's root and the real data beside it."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Three workers share two cores: a numerical library that starts a thread per core in each of them
# makes both slower. Set here because the libraries read it once, when they are first imported.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tolerances are those of float32; what needs a GPU asks for one by name.
os.environ.setdefault("WHET_DEVICE", "cpu")

# A pass of the sandbox is remembered by all tests together, and not in the home of the person who runs them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _state = tempfile.TemporaryDirectory(prefix="whet-tests-")
    os.environ["XDG_STATE_HOME"] = _state.name

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Time no example: a busy machine makes any of them slow, and what is timed is in benchmarks/."""
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        settings.register_profile("untimed", deadline=None)
        settings.load_profile("untimed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Repeat what failed before the tests in a CI run: its log ends here, and its middle is often cut."""
    failed = ROOT / ".integrations" / "failed"
    if os.environ.get("CI") and failed.is_file():
        terminalreporter.section("integrations that failed")
        terminalreporter.write_line(failed.read_text(encoding="utf-8", errors="replace"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Seven thousand tests and what they import stay to the end: no garbage collection looks at them.

    While they are collected, it would look through all of them again and again, in each of the workers.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data: $WHET_DATA, else ../shared/data beside the checkout.

    Without it a test that asks for it is skipped; under CI that is a failure, because a job that
    quietly skips the real data would report what it never looked at.
    """
    folder = Path(os.environ.get("WHET_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        message = f"no real data at {folder}; set WHET_DATA to its folder"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(autouse=True)
def _its_own_compute() -> Iterator[None]:
    """A command sets where its process computes; the next test's is another."""
    yield
    local = sys.modules.get("whet.learn.training.local")
    if local is not None:
        shared = local.LocalModels.shared()
        shared.compute = type(shared.compute)()
