"""Serves the page: one HTML file for all its addresses, and files with hashed names, which browsers may keep.

The files are those in ``service/page``, the modules that the offline page uses as well (``plots/assets/shared``, served
as ``shared/``), and ``outlets.js``, which the service makes from its registry of outlets.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from astray.service.alerts.outlets import OUTLETS

PAGES = ("/", "/live", "/review", "/trip/{rest:path}", "/health", "/settings", "/export", "/login")
TYPES = {
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
FOREVER = "public, max-age=31536000, immutable"
PACKED = ("text/", "application/json", "application/manifest", "image/svg")
NO_PAGE = b"<!doctype html><title>astray</title><p>This astray was installed without its page; the API is there."


class File(NamedTuple):
    """A file of the page, ready to send."""

    data: bytes
    packed: bytes | None
    kind: str


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith((".", "__"))
    }


def _file(name: str, data: bytes) -> File:
    ending = name[name.rfind(".") :]
    kind = TYPES.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    text = kind.startswith(PACKED)
    return File(data, gzip.compress(data, 6, mtime=0) if text and len(data) > 1000 else None, kind)


def page_routes() -> list[Route]:
    """Returns the routes of the page and its files."""
    astray = Path(__file__).parents[2]
    shared = _files(astray / "plots" / "assets" / "shared")
    contents = _files(astray / "service" / "page") | {f"shared/{name}": data for name, data in shared.items()}
    labels = {kind: (outlet.label, outlet.example) for kind, outlet in OUTLETS.items()}
    contents["outlets.js"] = b"export const OUTLETS = " + msgspec.json.encode(labels) + b";\n"
    digest = hashlib.blake2b(digest_size=6)
    for name in sorted(contents):
        digest.update(name.encode() + b"\0" + contents[name])
    version = digest.hexdigest()
    known = {name: _file(name, data) for name, data in contents.items()}
    index = contents.get("index.html", NO_PAGE).replace(b"/static/", f"/static/{version}/".encode())
    page = _file("index.html", index)

    async def show(request: Request) -> Response:
        return _sent(page, request, "no-cache")

    async def static(request: Request) -> Response:
        name, kept = request.path_params["name"], "no-cache"
        if name.startswith(f"{version}/"):
            name, kept = name[len(version) + 1 :], FOREVER
        file = known.get(name)
        return Response(b"", 404) if file is None else _sent(file, request, kept)

    return [*(Route(path, show) for path in PAGES), Route("/static/{name:path}", static)]


def _sent(file: File, request: Request, kept: str) -> Response:
    headers = {"cache-control": kept, "vary": "accept-encoding"}
    if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers={**headers, "content-encoding": "gzip"}, media_type=file.kind)
    return Response(file.data, headers=headers, media_type=file.kind)
