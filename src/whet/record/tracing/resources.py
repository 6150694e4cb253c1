"""Handles on what can be improved: a prompt, a table of knobs, a function.

A handle looks its current Version up when it is read, so an agent runs under a candidate
without being rewritten.  What is read while a module is being imported is baked in and cannot
be improved; such reads are counted and warned about.  Nothing here decides which Bundle is
current (`live.py`) or loads code that came as data: a function's Version is used only where the
program registered a loader for its kind, or marked it `live=True` (`released.py`).
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar, overload

from ...errors import InputError, SandboxError, WhetError
from ...python_text import module_of
from ...types import Bundle, Json, Version
from ..store.releases import declared
from .kinds import decorated, forwarding, name_of
from .live import current_bundle, origin, reads
from .record import current
from .released import ISOLATED, function_of, loadable
from .trace import evolving

F = TypeVar("F", bound=Callable[..., Any])
Loader = Callable[[Version, Callable[..., Any]], Callable[..., Any]]

_NAME = re.compile(r"[\w.:/-]+")
_WATCHED = 64
"""Reads of a handle whose callers are looked at: baking in happens early."""

_loaders: dict[str, Loader] = {}
_import_reads: list[str] = []
_isolating: list[bool] = []
"""Not empty where every Bundle is a server's, as in a worker."""


class ImportTimeRead(UserWarning):
    """A resource was read while a module was being imported, so its value is baked in."""


class Resource:
    """A named resource.  `get()` or `.value` is its content now; `.version` the Version it comes from.

    The content is the Version's own: do not change it (the views below are read-only).
    """

    def __init__(self, name: str, default: Json, kind: str) -> None:
        self.name = name
        self.default = default
        self.kind = kind
        self._reads = 0
        self._default: Version | None = None
        self._lookup: tuple[Bundle | None, Version | None] = (None, None)
        self._content: tuple[Version | None, Json] = (None, default)

    @property
    def default_version(self) -> Version:
        """The default as a Version, which is recorded where nothing else is current."""
        if self._default is None:
            self._default = Version(resource=self.name, content=self._default_content(), kind=self.kind)
        return self._default

    def _default_content(self) -> Json:
        return self.default

    @property
    def version(self) -> Version:
        """The current Version; recorded as used, for who asks for weights by it loads them."""
        self._read()
        return self._look() or self.default_version

    def get(self) -> Any:
        """The current content; recorded as used by the traced call that runs."""
        return self._read()

    def _read(self) -> Any:
        # The walk up the stack is paid by the first reads alone.
        if self._reads < _WATCHED:
            self._reads += 1
            self._watch()
        version = self._look()
        frame = current.get()
        if (frame is not None and frame.call is not None) or reads.get() is not None:
            self._used(version or self.default_version)
        return self.default if version is None else version.content

    def _used(self, version: Version) -> None:
        """Note that a Version was read, where somebody keeps count."""
        frame = current.get()
        if frame is not None and frame.call is not None:
            frame.call.used(self.name, version.id)
        noted = reads.get()
        if noted is not None:
            noted[self.name] = version.id

    @property
    def value(self) -> Any:
        return self._read()

    def _look(self) -> Version | None:
        bundle = current_bundle()
        lookup = self._lookup
        if lookup[0] is not bundle:
            # One tuple, replaced at once: no thread sees the Bundle of one read with the Version of another.
            lookup = self._lookup = (bundle, bundle.get(self.name))
        return lookup[1]

    def _watch(self) -> None:
        frame = sys._getframe(1)
        while (above := frame.f_back) is not None:
            frame = above
            if frame.f_code.co_name != "<module>":
                continue
            module = frame.f_globals.get("__spec__")
            # `_initializing` is private to importlib; the <module> frame of a script or of exec has none.
            if getattr(module, "_initializing", False):
                _import_reads.append(self.name)
                warnings.warn(
                    f"resource {self.name!r} was read while {frame.f_globals.get('__name__')} was being "
                    "imported: its value is baked in, and no candidate can replace it. Read it where it "
                    "is used: make the agent in a function, or go through the gateway.",
                    ImportTimeRead,
                    stacklevel=3,
                )
                return

    def __repr__(self) -> str:
        return f"resource({self.name!r})"


class TextResource(Resource):
    """A text.  `str(handle)`, f-strings and the methods of str read it."""

    def __str__(self) -> str:
        return str(self._read())

    def __format__(self, spec: str) -> str:
        return format(str(self._read()), spec)

    def __getattr__(self, name: str) -> Any:
        # Underscored names are looked up by copy, pickle and debuggers, which must not count as reads.
        if name.startswith("_") or not hasattr(str, name):
            raise AttributeError(f"a text resource has no attribute {name!r}")
        return getattr(str(self._read()), name)

    def __len__(self) -> int:
        return len(self._read())

    def __contains__(self, part: str) -> bool:
        return part in self._read()

    def __getitem__(self, index: int | slice) -> str:
        return str(self._read()[index])

    def __add__(self, suffix: object) -> str:
        return str(self._read()) + str(suffix)

    def __radd__(self, prefix: object) -> str:
        return str(prefix) + str(self._read())

    def __mod__(self, values: object) -> str:
        return str(self._read()) % values

    def __eq__(self, other: object) -> bool:
        return str(self._read()) == (str(other._read()) if isinstance(other, TextResource) else other)

    # `__eq__` takes the hash away. By identity, for the content of a handle changes under it.
    __hash__ = object.__hash__


def _item(value: Any) -> Any:
    """An item of a Version's content: a container as a copy, for Versions do not change."""
    return copy.deepcopy(value) if isinstance(value, dict | list) else value


class Table(Resource, Mapping[str, Any]):
    """A read-only mapping whose every read sees the current Version."""

    def get(self, *key: Any) -> Any:
        """As of a dict with a key and perhaps a default; without any, a copy of the whole content."""
        return Mapping.get(self, *key) if key else copy.deepcopy(self._read())

    def __getitem__(self, key: str) -> Any:
        return _item(self._read()[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    __hash__ = object.__hash__


class SequenceResource(Resource, Sequence[Any]):
    """A read-only sequence whose every read sees the current Version."""

    def __getitem__(self, index: Any) -> Any:
        return _item(self._read()[index])

    def __len__(self) -> int:
        return len(self._read())

    def __eq__(self, other: object) -> bool:
        return list(self._read()) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = object.__hash__


class FunctionResource(Resource):
    """The resource behind a function marked with `@evolve`; its default is the function's source, undecorated."""

    def __init__(
        self, name: str, function: Callable[..., Any], kind: str, metric: Any, *, live: bool = False
    ) -> None:
        super().__init__(name, None, kind)
        self.function = function
        self.metric = metric
        self.live = live
        """Released Versions of it run in this process."""
        self._loaded: tuple[Version | None, Callable[..., Any]] = (None, function)
        self._released: tuple[str, Callable[..., Any] | None] = ("", None)
        self._served: tuple[str, Callable[..., Any] | None] = ("", None)
        self._warned: set[str] = set()

    def _default_content(self) -> Json:
        try:
            return _undecorated(textwrap.dedent(inspect.getsource(self.function)))
        except (OSError, TypeError):
            return f"{self.function.__module__}.{getattr(self.function, '__qualname__', repr(self.function))}"

    @property
    def version(self) -> Version:
        """The current Version. A call may use another, for not every text may run here: see `implementation`."""
        return self._look() or self.default_version

    def implementation(self) -> Callable[..., Any]:
        """The function to call now."""
        version = self._look()
        used = self.function
        if version is not None:
            chosen = self._chosen(version)
            if chosen is not None:
                used = chosen
            elif version.id != self.default_version.id:
                # What is recorded is what ran: the source, and not the Version that could not.
                version = None
        self._used(version or self.default_version)
        return used

    def _chosen(self, version: Version) -> Callable[..., Any] | None:
        """The function to call for a Version; None where it may not or cannot run."""
        if self.live and version.kind == self.kind and origin() == "store":
            if self._released[0] != version.id:
                self._released = version.id, self._of_release(version)
            return self._released[1]
        loaded = self._loaded
        if loaded[0] is version or (loaded[0] is not None and loaded[0].id == version.id):
            return loaded[1]
        if (load := _loaders.get(version.kind)) is None:
            if version.kind == self.kind and (_isolating or origin() == "server"):
                if self._served[0] != version.id:
                    self._served = version.id, self._isolated(version)
                return self._served[1]
            self._warn(version, self._unloaded(version))
            return None
        self._loaded = (version, load(version, self.function))
        return self._loaded[1]

    def _of_release(self, version: Version) -> Callable[..., Any] | None:
        if version.id == self.default_version.id:
            return self.function
        try:
            return function_of(version, self.function)
        except InputError as error:
            self._warn(
                version,
                f"Version {version.id} of {self.name!r} is live and cannot be run: {error}. The function runs as it "
                "stands in the source. Roll back, or apply the patch of the run that made the Version.",
            )
            return None

    def _isolated(self, version: Version) -> Callable[..., Any] | None:
        """A Version that a server sent as calls into the sandbox; None of one that cannot run there."""
        if version.id == self.default_version.id:
            return self.function
        try:
            call: Callable[..., Any] = ISOLATED.load()(version, self.function)
        except WhetError as error:
            self._source_instead(version, error)
            return None

        def source(error: WhetError) -> Callable[..., Any]:
            self._source_instead(version, error)
            self._served = version.id, None
            self._used(self.default_version)
            return self.function

        if inspect.iscoroutinefunction(self.function):

            async def later(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await call(*args, **kwargs)
                except (InputError, SandboxError) as error:
                    instead = source(error)
                return await instead(*args, **kwargs)

            return later

        def now(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except (InputError, SandboxError) as error:
                instead = source(error)
            # Behind the except: an error of the function's own would else be chained to the sandbox's.
            return instead(*args, **kwargs)

        return now

    def _source_instead(self, version: Version, error: WhetError) -> None:
        self._warn(
            version,
            f"Version {version.id} of {self.name!r} was released by a server, and code that a server sends runs in "
            f"the sandbox alone, where this cannot: {error}. The function runs as it stands in the source. To run it "
            "here, record to the store's file and mark the function with @whet.evolve(live=True), or apply the patch "
            "of the run that made it (git apply whet_output/agent.patch).",
        )

    def _unloaded(self, version: Version) -> str:
        if origin() == "given" or version.kind != self.kind:
            return (
                f"no loader is registered for Versions of kind {version.kind!r}, so {self.name!r} runs as it "
                "stands in the source. Register one with whet.record.tracing.register_loader."
            )
        return (
            f"Version {version.id} of {self.name!r} was released, which this program is not asked to run: mark the "
            "function with @whet.evolve(live=True), or apply the patch of the run that made it (git apply "
            "whet_output/agent.patch). Until then it runs as in the source."
        )

    def _warn(self, version: Version, sentence: str) -> None:
        if version.id != self.default_version.id and version.id not in self._warned:
            self._warned.add(version.id)
            warnings.warn(sentence, stacklevel=6)


def _undecorated(text: str) -> str:
    """A function's source without its decorators, which stay around whatever stands in its place."""
    try:
        first = module_of(text).body[0].lineno
    except SyntaxError:  # a lambda's lines may be a piece of a statement
        return text
    return "".join(text.splitlines(keepends=True)[first - 1 :])


@overload
def resource(name: str, default: str, *, kind: str | None = None) -> TextResource: ...
@overload
def resource(name: str, default: Mapping[str, Any], *, kind: str | None = None) -> Table: ...
@overload
def resource(name: str, default: Sequence[Any], *, kind: str | None = None) -> SequenceResource: ...
@overload
def resource(name: str, default: Json = None, *, kind: str | None = None) -> Resource: ...
def resource(name: str, default: Json = None, *, kind: str | None = None) -> Resource:
    """A handle on the resource `name`, which has the content `default` until a Bundle names it.

    Args:
        default: a text, a mapping, a sequence, or another JSON value (read with `.get()`).
        kind: of its Versions; `prompt` for a text, else `value`.

    Raises:
        InputError: the default has no JSON form.
    """
    handle: Resource
    if isinstance(default, str):
        handle = TextResource(name, default, kind or "prompt")
    elif isinstance(default, Mapping):
        handle = Table(name, dict(default), kind or "value")
    elif isinstance(default, Sequence) and not isinstance(default, bytes | bytearray | memoryview):
        handle = SequenceResource(name, list(default), kind or "value")
    elif default is None or isinstance(default, bool | int | float):
        handle = Resource(name, default, kind or "value")
    else:
        raise InputError(
            f"resource {name!r}: a {type(default).__name__} has no JSON form; give text, dict or list."
        )
    try:
        handle.default_version  # noqa: B018 - hashes the default, which shows whether it is JSON
    except (TypeError, ValueError, OverflowError) as exception:
        raise InputError(f"resource {name!r}: its default has no JSON form: {exception}") from exception
    _declare(handle)
    return handle


@overload
def evolve(function: F, /) -> F: ...
@overload
def evolve(
    target: str | None = None,
    /,
    *,
    name: str | None = None,
    kind: str = "function",
    metric: Any = None,
    live: bool = False,
) -> Callable[[F], F]: ...
def evolve(
    target: Any = None,
    /,
    *,
    name: str | None = None,
    kind: str = "function",
    metric: Any = None,
    live: bool = False,
) -> Any:
    """Mark a function as something to improve.  It behaves as before until a Bundle names it.

    Its calls inside a traced run are steps (of the kind `function`, or as its `@step` says).

    >>> @whet.evolve
    ... def rank(hits: list[str]) -> list[str]: ...
    >>> @whet.evolve("search.rank")
    ... def rank(hits: list[str]) -> list[str]: ...

    Args:
        target: the function, sync, async, generator or method, or the name of its resource.
        name: of the resource; the function's name in lower case if None.
        kind: of its Versions.
        metric: judges it; kept for the optimizer that asks.
        live: run its released Version (`whet release`) in this process, as its own code, until it is rolled
            back. Only a text that was released in a store on this machine, never a candidate or code from a server;
            one that cannot take the function's place is not run, with a warning. False warns, once, and
            runs the function as in the source.

    Raises:
        InputError: it is given a text, a value or a class: a text or value is a `whet.resource`; or live, and
            the mark does not stand directly above the function.
    """
    if isinstance(target, str):
        if name is not None or _NAME.fullmatch(target) is None:
            raise InputError(
                f"@whet.evolve marks a function, and {target!r:.60} is not one, nor the name of a resource. "
                'For a text that is to be improved write whet.resource("its name", default=text).'
            )
        name, target = target, None
    if target is None:
        return lambda function: _evolved(function, name, kind, metric, live=live)
    return _evolved(target, name, kind, metric, live=live)


def _evolved(function: Any, name: str | None, kind: str, metric: Any, *, live: bool = False) -> Any:
    if not callable(function) and not isinstance(function, staticmethod | classmethod):
        raise InputError(
            f"@whet.evolve marks a function, and was given {function!r:.60}. For a text or a value write "
            'whet.resource("its name", default=value).'
        )
    return decorated(function, "@whet.evolve", lambda inner: _evolve(inner, name, kind, metric, live=live))


def _evolve(function: Any, name: str | None, kind: str, metric: Any, *, live: bool) -> Any:
    name = name or name_of(function).rpartition(".")[2].lower()
    if live:
        loadable(function, name)
    handle = FunctionResource(name, function, kind, metric, live=live)
    _declare(handle)
    # Its calls are steps, for a decision is learned from them.
    marked = evolving(forwarding(function, lambda _args, _kwargs: handle.implementation()))
    marked.resource = handle
    return marked


def register_loader(kind: str, load: Loader) -> None:
    """Say how a Version of this kind becomes a callable: `load(version, original)`.

    It is called once per Version and function; the result is kept.
    """
    _loaders[kind] = load


def isolate_functions() -> None:
    """Run functions of the Bundles of this process in the sandbox, as they come from a server; for workers."""
    _isolating[:] = [True]


def attach(module: ModuleType, *names: str) -> None:
    """Rebind constants and functions of a program to handles, by name.

    A text, dict, list or tuple becomes a `resource`, a function an `evolve`d one; the resource's name is
    the attribute's in lower case.  What another module imported from this one before stays as it was.

    Raises:
        InputError: no such name, or one that cannot be a resource; nothing was rebound.
    """
    handles: dict[str, Any] = {}
    for name in names:
        try:
            value = getattr(module, name)
        except AttributeError:
            raise InputError(f"{module.__name__} has no {name!r}. Give names that it defines.") from None
        if isinstance(value, Resource) or isinstance(getattr(value, "resource", None), Resource):
            continue  # attached already
        if inspect.isroutine(value):
            handles[name] = _evolved(value, name.lower(), "function", None)
        elif isinstance(value, str | Mapping | list | tuple):
            handles[name] = resource(name.lower(), value)
        else:
            raise InputError(
                f"{module.__name__}.{name} is a {type(value).__name__}; only texts, dicts, lists, tuples and "
                "functions can be attached. Put a number into a dict."
            )
    # After all of them were looked at: of a list with one bad name nothing is rebound.
    for name, handle in handles.items():
        setattr(module, name, handle)


def _declare(handle: Resource) -> None:
    declared[handle.name] = handle


def resources() -> Mapping[str, Resource]:
    """Name → handle, of every resource that this process has declared."""
    return {name: handle for name, handle in declared.items() if isinstance(handle, Resource)}


def import_time_reads() -> Sequence[str]:
    """Names of the resources that were read while a module was being imported."""
    return tuple(_import_reads)
