"""What every test may ask for: the repository's root and the real data beside it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

# Four workers share two cores: a numerical library that starts a thread per core in each of them
# makes both slower. Set here because the libraries read it once, when they are first imported.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tolerances are those of float32; what needs a GPU asks for one by name.
os.environ.setdefault("WHET_DEVICE", "cpu")

# A shell that starts the tests in the background has Ctrl-C ignored, and a program that they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A pass of the sandbox is remembered by all tests together, and not in the home of the person who runs them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _state = tempfile.TemporaryDirectory(prefix="whet-tests-")
    os.environ["XDG_STATE_HOME"] = _state.name
    # All clients here speak to loopback, without encryption; yet each of thousands would read all certificates of the
    # system, in 20 ms of processor time.  One takes none.
    _end = "-----END CERTIFICATE-----\n"
    _first = Path(certifi.where()).read_text(encoding="utf-8").partition(_end)[0].rpartition("-----BEGIN")[2]
    _one = Path(_state.name, "one.pem")
    _one.write_text(f"-----BEGIN{_first}{_end}", encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = str(_one)

ROOT = Path(__file__).resolve().parent.parent
LONG = {
    "test_house_readme": 120,
    "test_demo_job": 54,
    "test_autopilot_journey": 60,
    "test_autopilot_shadow": 50,
    "test_autopilot_weights": 46,
    "test_training_processes": 46,
    "test_panel_reward": 32,
    "test_weights_journey": 22,
    "test_policy_cli": 20,
    "test_autopilot_serving": 19,
    "test_pipeline": 17,
    "test_evolution_search": 17,
    "test_findings_journey": 16,
    "test_recorded_judges": 14,
    "test_evolution_openevolve": 14,
    "test_evolution_targets_job": 12,
    "test_refused_keys": 11,
    "test_training_cli": 11,
    "test_training_journey": 10,
}
"""Seconds of processor time of the files that take longest, about: they begin, and what is left to the end is short."""


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
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Seven thousand tests and what they import stay to the end: no garbage collection looks at them.

    While they are collected, it would look through all of them again and again, in each of the workers.
    """
    gc.disable()
    try:
        _import_in_turn(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def _import_in_turn(config: pytest.Config) -> None:
    """Import the files of a whole run, each worker from elsewhere on: what one has compiled, the others read.

    In a fresh checkout all of them would otherwise rewrite the assertions of the same file at the same time.
    """
    number, workers = _place()
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or workers < 2:
        return
    files = sorted(ROOT.glob("tests/test_*.py"))
    first = len(files) * number // workers
    for path in files[first:] + files[:first]:
        # What cannot be imported, or is left out here, is told where it is collected.
        with warnings.catch_warnings(), contextlib.suppress(Exception, pytest.skip.Exception):
            warnings.simplefilter("error")
            importlib.import_module(path.stem)


def _place() -> tuple[int, int]:
    """The number of this worker, from 0, and how many there are."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(worker.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin each worker's share with some of the long files, whole: the rest is stolen from the ends of the shares."""
    _, workers = _place()
    if workers < 2:
        return
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path.stem, []).append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    seconds = [0] * workers
    for name in sorted(LONG.keys() & by_file.keys(), key=lambda name: (-LONG[name], name)):
        least = seconds.index(min(seconds))
        seconds[least] += LONG[name]
        shares[least] += by_file.pop(name)
    rest = [item for own in by_file.values() for item in own]
    whole, done = len(items), 0
    items.clear()
    for number, share in enumerate(shares):
        # As many as the scheduler hands to each.
        size = (whole - done) // (workers - number)
        taken = max(0, size - len(share))
        items += share + rest[:taken]
        del rest[:taken]
        done += size
    items += rest


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
