"""The description of the API in the format of OpenAPI, from the declarations of its operations."""

from __future__ import annotations

import re
from typing import Any

from astray import __version__
from astray.service.feeds import FORMATS
from astray.service.web.operations import OPERATIONS, Operation

Json = dict[str, Any]

ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["reason", "remedy"],
            "properties": {"reason": {"type": "string"}, "remedy": {"type": "string"}, "field": {"type": "string"}},
        }
    },
}
REFUSALS = {
    "400": "The request is broken.",
    "401": "A token is needed.",
    "403": "The token does not allow it.",
    "404": "There is nothing of that name.",
    "405": "Not with this method.",
    "408": "It took too long.",
    "409": "It has taught already.",
    "413": "It is too large.",
    "421": "Asked by a name that is not the service's.",
    "422": "Something in it cannot be used.",
    "429": "Too much at once; Retry-After says when to try again.",
    "503": "The store refuses at present; Retry-After says when to try again.",
}


def description() -> Json:
    """The whole description."""
    paths: dict[str, Json] = {}
    for op in OPERATIONS:
        paths.setdefault(re.sub(r":path\}", "}", op.path), {})[op.method.lower()] = _described(op)
    for name, form in FORMATS.items():
        for path in form.paths:
            if "{" not in path:
                paths[path] = {method.lower(): _feed(name, method) for method in form.methods}
    for path, says in (("/healthz", "Whether the service answers."), ("/metrics", "Figures for Prometheus.")):
        paths[path] = {"get": {"summary": says, "responses": _responses("text/plain")}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "astray serve", "version": __version__, "summary": "Is this behaviour still normal?"},
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(op: Operation) -> Json:
    named = re.findall(r"\{(\w+)(?::path)?\}", op.path)
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in named
    ]
    for name, p in op.query.items():
        schema: Json = {"type": p.kind}
        schema |= {} if p.low is None else {"minimum": p.low}
        schema |= {} if p.high is None else {"maximum": p.high}
        schema |= {} if p.default is None else {"default": p.default}
        parameters.append({"name": name, "in": "query", "description": p.says, "schema": schema})
    found: Json = {"summary": op.says, "operationId": op.handler.__name__, "responses": _responses(op.answers)}
    found |= {"parameters": parameters} if parameters else {}
    if op.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": op.body}}}
    return found


def _feed(name: str, method: str) -> Json:
    found: Json = {
        "summary": f"Fixes in the format {name}; docs/how-to/feeds.md says how to set up what sends them.",
        "operationId": f"{name}_{method.lower()}",
        "responses": _responses("application/json"),
    }
    if method == "POST":
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": {}}}}
    return found


def _responses(kind: str) -> Json:
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "200": {"description": "Done.", "content": {kind: {"schema": {}}}},
        **{status: {"description": says, "content": refused} for status, says in REFUSALS.items()},
    }
