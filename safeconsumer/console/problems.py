"""Answers failed requests: with RFC 9457 documents for programs, with pages for people."""

import html
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<title>{title} · safeconsumer</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/console.css">
<main class="lonely"><h1>{title}</h1><p>{detail}</p><p><a href="/">All groups</a></p>
</main></html>"""


class Problem(Exception):  # noqa: N818 - RFC 9457's word
    """
    A request that was not carried out.

    Args:
        status: the HTTP status.
        title: what happened.
        detail: what to do about it.
        more: further members of the JSON document.
    """

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        more: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail
        self.more = more or {}

    def answer(self, request: Request) -> Response:
        """Return the problem in the form that the client reads."""
        if request.url.path.startswith("/api/"):
            return JSONResponse(
                self.document, self.status, media_type="application/problem+json"
            )
        page = _PAGE.format(
            title=html.escape(self.title), detail=html.escape(self.detail)
        )
        return HTMLResponse(page, self.status)

    @property
    def document(self) -> dict[str, Any]:
        """The members of RFC 9457, and our own."""
        return {
            "type": "about:blank",
            "status": self.status,
            "title": self.title,
            "detail": self.detail,
            **self.more,
        }
