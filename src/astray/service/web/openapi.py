"""Describes the API as an OpenAPI document, from the declarations of its operations."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from astray import __version__
from astray.service.feeds import FORMATS
from astray.service.responses import JSON
from astray.service.web.operations import OPERATIONS, Operation

Json = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"
REFUSALS = {
    "400": "The request is broken.",
    "401": "The request needs a token.",
    "403": "The token does not allow this.",
    "404": "There is nothing of that name.",
    "405": "The address does not take this method.",
    "408": "The request took too long.",
    "409": "The verdict has taught already.",
    "413": "The request is too large.",
    "421": "The service does not go by this host name.",
    "422": "Something in the request cannot be used.",
    "429": "Too many requests; Retry-After says when to try again.",
    "503": "The store refuses at present; Retry-After says when to try again.",
}


class Reason(msgspec.Struct):
    """Why a request was refused."""

    reason: str
    remedy: str
    field: str | msgspec.UnsetType = msgspec.UNSET


class Error(msgspec.Struct):
    """The body of every refusal."""

    error: Reason


@cache
def description() -> bytes:
    """Returns the whole document as JSON."""
    kinds = [kind for op in OPERATIONS for kind in (op.query, op.body) if kind is not None]
    _, schemas = msgspec.json.schema_components([*kinds, Error], ref_template=REFERENCE)
    paths: dict[str, Json] = {}
    for op in OPERATIONS:
        paths.setdefault(op.path.replace(":path}", "}"), {})[op.method.lower()] = _described(op, schemas)
    for name, form in FORMATS.items():
        paths[form.path] = {method.lower(): _feed(name, method) for method in form.methods}
    queries = {op.query.__name__ for op in OPERATIONS if op.query is not None}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "astray serve", "version": __version__, "summary": "Is this behaviour still normal?"},
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in schemas.items() if name not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }
    return msgspec.json.encode(document)


def _described(op: Operation, schemas: Json) -> Json:
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)(?::path)?\}", op.path)
    ]
    fields = schemas[op.query.__name__]["properties"] if op.query is not None else {}
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]
    found: Json = {"summary": op.summary, "operationId": op.handler.__name__, "responses": _responses(op.answers)}
    found |= {"parameters": parameters} if parameters else {}
    return found | ({} if op.body is None else _body({"$ref": REFERENCE.format(name=op.body.__name__)}))


def _feed(name: str, method: str) -> Json:
    return {
        "summary": f"Takes fixes in the format {name}; docs/how-to/feeds.md says how to set up the sender.",
        "operationId": f"{name}_{method.lower()}",
        "responses": _responses(JSON),
    } | (_body({}) if method == "POST" else {})


def _body(schema: Json) -> Json:
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


def _responses(kind: str) -> Json:
    refused = {JSON: {"schema": {"$ref": REFERENCE.format(name="Error")}}}
    return {
        "200": {"description": "Done.", "content": {kind: {"schema": {}}}},
        **{status: {"description": says, "content": refused} for status, says in REFUSALS.items()},
    }
