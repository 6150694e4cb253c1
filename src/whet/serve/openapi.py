"""The OpenAPI document, made from the routes that are served: it cannot name one that is not, or miss one.

Types of bodies are described by msgspec from the same types that decode them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..types import Json
from .http import HttpRoute
from .worker.wire import RefusalBody

_PARAMETER = re.compile(r"\{(\w+)\}")


def document(routes: Sequence[HttpRoute], *, version: str) -> dict[str, Json]:
    """The OpenAPI 3.1 document of these routes.

    Args:
        version: of whet, as the document's own.
    """
    types: list[Any] = [RefusalBody]
    for route in routes:
        types += [kind for kind in (route.request, route.response, *route.query.values()) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = {_key(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Json]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "whet",
            "version": version,
            "description": "Ingest, queue, feedback and the model gateway of one store.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _key(kind: Any) -> Any:
    try:
        # A type without a hash goes by its id: the routes keep it alive, so no other type gets the same one.
        hash(kind)
    except TypeError:
        return id(kind)
    return kind


def _operation(route: HttpRoute, schemas: dict[Any, Any]) -> dict[str, Json]:
    problem = {"application/json": {"schema": schemas[RefusalBody]}}
    usual: dict[str, Json] = {"description": "Done."}
    if route.response is not None:
        usual["content"] = {"application/json": {"schema": schemas[_key(route.response)]}}
    operation: dict[str, Json] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in _PARAMETER.findall(route.path)
        ]
        + [
            {"name": name, "in": "query", "schema": schemas[_key(kind)]} for name, kind in route.query.items()
        ],
        "responses": {str(route.status): usual, "4XX": {"description": "Refused.", "content": problem}}
        | {"5XX": {"description": "Failed.", "content": problem}},
        "security": [{"token": []}] if route.role is not None else [],
    }
    if route.role is not None:
        operation["x-role"] = route.role.name.lower()
    if route.method in ("POST", "PUT", "PATCH") and (
        route.request is not None or route.request_media != JSON_ONLY
    ):
        schema = {} if route.request is None else {"schema": schemas[_key(route.request)]}
        operation["requestBody"] = {
            "required": True,
            "content": {
                media: schema if media == "application/json" else {} for media in route.request_media
            },
        }
    return operation


JSON_ONLY = ("application/json",)


def operation_id(route: HttpRoute) -> str:
    """A unique, telling name for a route: `post_api_rollouts_id_finish`."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", route.path).strip("_").lower()
    return f"{route.method.lower()}_{words}"
