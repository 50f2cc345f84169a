"""Defines the one form in which guard, feeds and API say why they do not serve a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from astray.core.text import harmless

JSON = "application/json"


class Refusal(Exception):
    """Raised for a request that the service does not serve; ``response`` is the answer.

    ``field`` is the part of the request that is wrong; ``more`` are further members of the body, beside ``error``.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        remedy: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        field: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(reason)
        error = {"reason": harmless(reason), "remedy": remedy} | ({} if field is None else {"field": field})
        body = msgspec.json.encode({"error": error, **more})
        self.response = Response(body, status, {"cache-control": "no-store", **(headers or {})}, JSON)
