"""
Answers failed requests with RFC 9457 documents for programs and pages for people.

A request counts as coming from a program if its ``Accept`` header names JSON and not
HTML, or if its body is JSON. Browsers name HTML. Tools that accept anything (``*/*``,
curl's default) get the page.
"""

import html
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

JSON = "application/json"
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<title>{title} · safeconsumer</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/console.css">
<main class="lonely"><h1>{title}</h1><p>{detail}</p><p><a href="/">All groups</a></p>
</main></html>"""


def is_program(request: Request) -> bool:
    """Return whether a request must be answered in JSON."""
    several = ",".join(request.headers.getlist("accept")).split(",")
    kinds = set(map(_kind, several))
    return (JSON in kinds and "text/html" not in kinds) or kind_of_body(request) == JSON


def kind_of_body(request: Request) -> str:
    """Return the media type of a request's body; "" if it has none."""
    return _kind(request.headers.get("content-type", ""))


def _kind(header: str) -> str:
    return header.partition(";")[0].strip().lower()


class Problem(Exception):  # noqa: N818 - RFC 9457's word
    """
    A request that could not be carried out.

    Args:
        status: the HTTP status.
        title: the problem.
        detail: advice for the user.
        more: additional members of the JSON document.
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
        """Return the problem as JSON or as a page, depending on the client."""
        if is_program(request):
            return JSONResponse(
                self.document, self.status, media_type="application/problem+json"
            )
        page = _PAGE.format(
            title=html.escape(self.title), detail=html.escape(self.detail)
        )
        return HTMLResponse(page, self.status)

    @property
    def document(self) -> dict[str, Any]:
        """The problem as a JSON document, with the members of RFC 9457 and our own."""
        return {
            "type": "about:blank",
            "status": self.status,
            "title": self.title,
            "detail": self.detail,
            **self.more,
        }
