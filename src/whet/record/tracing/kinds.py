"""The four kinds of function, and wrappers that stay of their function's kind.

Frameworks look at a function before they call it: `inspect.iscoroutinefunction` decides whether its answer
is awaited, `inspect.isgeneratorfunction` whether it is iterated.  Under Python 3.11 a plain `def` cannot say that
it returns a coroutine, so a wrapper must be an `async def` itself, and a generator function where it wraps one.
`trace.py` says what a wrapper records.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import nullcontext, suppress
from typing import Any, Literal, TypeAlias, get_type_hints

from ...errors import InputError

Kind: TypeAlias = Literal["plain", "async", "generator", "async generator"]
Arguments: TypeAlias = tuple[Any, ...]
Keywords: TypeAlias = dict[str, Any]


def kind_of(function: Any) -> Kind:
    """The kind of a function, method, `functools.partial`, or object whose class has `__call__`."""
    for candidate in (_code_of(function), function):
        if inspect.iscoroutinefunction(candidate) or hasattr(candidate, "_is_coroutine"):
            return "async"  # `_is_coroutine` is how asyncio marks a plain def before Python 3.12
        if inspect.isasyncgenfunction(candidate):
            return "async generator"
        if inspect.isgeneratorfunction(candidate):
            return "generator"
    return "plain"


def _unwrapped(function: Any) -> Any:
    """The function under any partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _code_of(function: Any) -> Any:
    """The code that runs: the function of a partial, the `__call__` of an object."""
    function = _unwrapped(function)
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return getattr(type(function), "__call__", function)  # noqa: B004 - the function itself is wanted


def name_of(function: Any) -> str:
    """The function's qualified name; of a partial that of its function, of an object that of its class."""
    function = _unwrapped(function)
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def dressed(wrapper: Callable[..., Any], function: Any) -> Callable[..., Any]:
    """The wrapper with the name, documentation, annotations and signature of the function."""
    # From the code: a partial has no name or annotations that could be copied.
    functools.update_wrapper(wrapper, _code_of(function))
    if not inspect.isroutine(function):  # a partial or an object has no name of its own
        inner = _unwrapped(function)
        wrapper.__qualname__ = name_of(function)
        wrapper.__name__ = wrapper.__qualname__.rpartition(".")[2]
        wrapper.__doc__ = wrapper.__doc__ if inner.__doc__ is None else inner.__doc__
        wrapper.__module__ = inner.__module__
        # Annotations that are text have a meaning in the module of the code, which nothing leads to from here.
        with suppress(Exception):
            wrapper.__annotations__ = get_type_hints(_code_of(function), include_extras=True)
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper


def decorated(function: Any, decorator: str, wrap: Callable[[Any], Any]) -> Any:
    """`wrap` of a function, or of the one inside a static or class method.

    Args:
        decorator: its name, for the refusal.

    Raises:
        InputError: there is nothing to call, or it is a class.
    """
    if isinstance(function, staticmethod | classmethod):
        return type(function)(wrap(function.__func__))
    if isinstance(function, type) or not callable(function):
        of = f"the class {function.__name__}" if isinstance(function, type) else f"{function!r:.60}"
        raise InputError(
            f"{decorator} marks a function or a method, and was given {of}. Mark what is called."
        )
    return wrap(function)


def forwarding(function: Any, choose: Callable[[Arguments, Keywords], Callable[..., Any]]) -> Any:
    """A function of the same kind and signature that calls `choose(args, kwargs)` each time it is called.

    The chosen one may be of another kind where its answer can still be given as `function` would give it: an
    async function's answer need not be awaited, and a generator's values may come as any iterable.
    """
    kind = kind_of(function)
    wrapper: Callable[..., Any]
    if kind == "async":

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            answer = choose(args, kwargs)(*args, **kwargs)
            return await answer if inspect.isawaitable(answer) else answer

    elif kind == "generator":

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return (yield from choose(args, kwargs)(*args, **kwargs))

    elif kind == "async generator":
        wrapper = driving(lambda args, kwargs: (choose(args, kwargs)(*args, **kwargs), None))
    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return choose(args, kwargs)(*args, **kwargs)

    return dressed(wrapper, function)


def driving(
    start: Callable[[Arguments, Keywords], tuple[Any, Any]],
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """An async generator function that drives the one it starts: values, `asend`, `athrow` and `aclose` reach it.

    Python has no `yield from` for these.

    Args:
        start: gives the generator and its record: a context manager around its life, whose `inside()` is in place
            while the body runs and not while it is suspended, and which is given each value (`add`); None for none.
    """

    async def driven(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        values, record = start(args, kwargs)
        inside = nullcontext if record is None else record.inside
        with record or nullcontext():
            generator = values if hasattr(values, "asend") else _yielded(values)
            # Set anew at each yield, by what comes back through it: `asend` with a value, or `athrow`.
            resume: Callable[[], Any] = generator.__anext__
            while True:
                try:
                    with inside():
                        value = await resume()
                except StopAsyncIteration:
                    return
                if record is not None:
                    record.add(value)
                try:
                    resume = functools.partial(generator.asend, (yield value))
                except GeneratorExit:
                    # Its own finally blocks run here, and may record: they belong inside, too.
                    with inside():
                        await generator.aclose()
                    raise
                except BaseException as thrown:
                    resume = functools.partial(generator.athrow, thrown)

    return driven


async def _yielded(values: AsyncIterable[Any] | Iterable[Any]) -> AsyncGenerator[Any, None]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value
