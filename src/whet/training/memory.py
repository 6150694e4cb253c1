"""Running out of memory as a refusal: what was being done, and what to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import TrainingRefused


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an allocator's failure into a refusal that says what to lower.

    Args:
        what: was being done.

    Raises:
        TrainingRefused: memory ran out.
    """
    try:
        yield
    except TrainingRefused:
        raise
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        raise TrainingRefused(
            f"out of memory {what}: {lines[0]:.200}. No weights were changed. Lower part_tokens (what is "
            "computed at once) first, then minibatch or batch, then train LoRA factors instead of full weights."
        ) from error


def _out_of_memory(error: Exception) -> bool:
    # On the CPU torch raises a plain RuntimeError ("can't allocate memory"), on a GPU OutOfMemoryError.
    return isinstance(error, MemoryError) or ("memory" in str(error) and "alloc" in str(error).lower())
