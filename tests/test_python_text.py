"""The one place that parses Python."""

from __future__ import annotations

import gc
import sys
import threading
import time

import pytest

from whet.python_text import expression_of, module_of

_TEXT = "total = " + " + ".join(
    f"f({number}, [{number}, {{'a': g(x.y[{number}])}}])" for number in range(100)
)


@pytest.mark.parametrize("text", ["total = = 3", "x\0y", "name = '\ud83d'", "(" * 5_000, "-" * 200_000 + "1"])
def test_what_is_no_python_is_a_syntax_error_and_nothing_else(text: str) -> None:
    with pytest.raises(SyntaxError):
        module_of(text)
    with pytest.raises(SyntaxError):
        expression_of(text)


def test_a_text_parses_while_other_threads_parse() -> None:
    """Their depths are one count in CPython 3.11: with `ast.parse` itself one of the ninety fails."""
    failed: list[BaseException] = []

    def parse(depth: int) -> None:
        if depth:
            return parse(depth - 1)
        try:
            for _ in range(30):
                assert len(module_of(_TEXT).body) == 1
        except BaseException as error:
            failed.append(error)

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    threads = [threading.Thread(target=parse, args=(10 * number,)) for number in range(3)]
    # A thread gives way amid a tree only where Python code runs there: in a callback of the collector.
    gc.callbacks.append(_give_way)
    gc.set_threshold(3)
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.callbacks.remove(_give_way)
    assert not failed


def _give_way(phase: str, info: dict[str, int]) -> None:
    time.sleep(0)
