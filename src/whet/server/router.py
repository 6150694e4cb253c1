"""Which Route answers a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from ..errors import NotFoundError
from .asgi import Refused, Route


class Router:
    """Finds the Route of a method and path: one dictionary look-up where the path has no `{name}`.

    Raises:
        ValueError: two routes for one method and pattern.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        seen: set[tuple[str, str]] = set()
        for route in routes:
            key = (
                route.method,
                "/".join("{}" if part[:1] == "{" else part for part in route.path.split("/")),
            )
            if key in seen:
                raise ValueError(f"two routes for {route.method} {route.path}")
            seen.add(key)
            if "{" not in route.path:
                self._exact.setdefault(route.path, {})[route.method] = route
                continue
            parts = tuple(route.path.split("/"))
            same_length = self._patterns.setdefault(len(parts), [])
            methods = next((methods for pattern, methods in same_length if pattern == parts), None)
            if methods is None:
                methods = {}
                same_length.append((parts, methods))
            methods[route.method] = route

    def find(self, method: str, path: str, raw: str | None = None) -> tuple[Route, Mapping[str, str]]:
        """The route and what its `{name}` parts stand for.

        Args:
            raw: the path as it was sent; a `%2F` in it is part of an id, not of the path.

        Raises:
            NotFoundError: no route has this path.
            Refused: the path is known, the method is not: 405.
        """
        methods = self._exact.get(path)
        if methods is not None and method in methods:
            return methods[method], {}
        known = set(methods or ())
        parts = (path if raw is None else raw).split("/")
        for pattern, found in self._patterns.get(len(parts), ()):
            params = _matched(pattern, parts)
            if params is None:
                continue
            if method in found:
                return found[method], params
            known |= set(found)
        if known:
            allowed = ", ".join(sorted(known))
            raise Refused(
                405, "method_not_allowed", f"{method} {path}: use {allowed}", headers={"allow": allowed}
            )
        raise NotFoundError(f"nothing is served at {path}; GET /openapi.json lists what is")


def _matched(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for wanted, given in zip(pattern, parts, strict=True):
        if wanted[:1] == "{":
            if not given:
                return None
            params[wanted[1:-1]] = unquote(given)
        elif wanted != given:
            return None
    return params
