"""Functions of many small steps over large tensors, as one kernel each on a CUDA GPU."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def on_gpu(function: Callable[P, R]) -> Callable[P, R]:
    """The function, compiled by torch where its first argument is on a CUDA GPU, and itself elsewhere.

    Compiling takes some seconds at the first call.  Where it fails, for want of a C compiler say, the function is
    called as it is from then on: slower, with the same values.
    """
    kept: dict[str, Callable[..., Any]] = {}

    @functools.wraps(function)
    def called(*arguments: P.args, **settings: P.kwargs) -> R:
        first: Any = arguments[0]
        if first.device.type != "cuda" or kept.get("fastest") is function:
            return function(*arguments, **settings)
        fastest = kept.setdefault("fastest", torch.compile(function))
        try:
            out: R = fastest(*arguments, **settings)
            return out
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # compilers fail in many ways
            kept["fastest"] = function
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            warnings.warn(f"training is slower: a kernel could not be compiled ({why:.200})", stacklevel=2)
            return function(*arguments, **settings)

    return called
