"""Controls access to the console, and restricts what its pages may do in browsers."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeconsumer.console.problems import Problem
from safeconsumer.errors.base import HoldSettingError
from safeconsumer.holds.hold import checked_owner

LOGIN = "/login"
# Paths without secrets, open to everyone; the page that explains the login needs them.
_OPEN = ("/static/", "/live")
_SAFE = frozenset({"GET", "HEAD"})
# Headers with which a browser indicates that the user has not clicked yet; the older
# names are from Safari and Firefox.
_AHEAD_OF_TIME = ("sec-purpose", "purpose", "x-purpose", "x-moz")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Without a referrer, a browser would send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    # The same address serves a page or its content as JSON.
    "Vary": "Accept",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# A page and not a redirect, because the cookie is Strict: a browser would not send it
# after a redirect from another site.
_WELCOME = """<!doctype html><html lang="en"><title>safeconsumer</title>
<link rel="icon" href="/static/icon.svg">
<meta http-equiv="refresh" content="0;url=/"><a href="/">To the console</a></html>"""


class Auth:
    """
    Keeps this console's login token, session and host names.

    Args:
        port: this console's port; it is part of the cookie's name, because browsers
            send a host's cookies to all ports.
        lasting: a token that does not expire, for scripts and additional browsers.
        owner: the owner name for all users, if no proxy sends names.
        owner_header: the header in which a proxy on this machine sends the user's name.
    """

    def __init__(
        self,
        port: int,
        lasting: str | None = None,
        *,
        owner: str,
        owner_header: str | None = None,
    ) -> None:
        self._owner, self._owner_header = owner, owner_header
        self.token = secrets.token_urlsafe(24)
        self._lasting = lasting
        self._is_used = False
        self._session = secrets.token_urlsafe(32)
        self._port = port
        self._cookie = f"safeconsumer_{port}"
        names = ("127.0.0.1", "localhost", "[::1]")
        self._hosts = frozenset(f"{name}:{port}" for name in names)

    def owner_of(self, request: Request) -> str:
        """
        Return the owner of the holds that a request places.

        Raises:
            Problem: the proxy did not send the user's name.
        """
        if self._owner_header is None:
            return self._owner
        # A client must not be able to choose the name by sending the header through the
        # proxy.
        given, peer = request.headers.getlist(self._owner_header), request.client
        with suppress(HoldSettingError, ValueError):
            (name,) = given
            if peer is not None and ip_address(peer.host).is_loopback:
                return checked_owner(name)
        raise Problem(
            403,
            "your user name is unknown",
            f"the proxy on this machine must name one user in {self._owner_header}",
        )

    def form_token(self, owner: str) -> str:
        """Return the token for an owner's forms, which other sites and owners cannot know."""
        key = self._session.encode()
        return hmac.new(key, f"form {owner}".encode(), hashlib.sha256).hexdigest()

    def is_form_of(self, owner: str, given: str) -> bool:
        """Return whether a form contains its owner's token."""
        return _same(given, self.form_token(owner))

    def refusal(self, request: Request) -> Problem | None:
        """Return why a request is refused; None if it may pass."""
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return Problem(
                400,
                "this console does not answer under that host name",
                f"open it as 127.0.0.1:{self._port} or localhost:{self._port}; through "
                f"a tunnel with the same port: ssh -L {self._port}:127.0.0.1:"
                f"{self._port}",
            )
        if request.url.path.startswith((*_OPEN, LOGIN)):
            return None
        is_bearer = self._is_bearer(request)
        cookie = request.cookies.get(self._cookie, "")
        if not is_bearer and not _same(cookie, self._session):
            login = request.headers.get("authorization", "")
            if login.lower().startswith("bearer "):
                return self._unknown_token()
            return Problem(
                401,
                "you are not logged in",
                "open the link that safeconsumer console printed; it works once. "
                "For another browser start the console again, or with --token-file",
            )
        if request.method not in _SAFE and not is_bearer:
            return _foreign(request, host)
        return None

    def _unknown_token(self) -> Problem:
        if self._lasting is None:
            why = "start the console with --token-file, and send the token of that file"
        else:
            why = (
                "send Authorization: Bearer with the token of the file of --token-file"
            )
        return Problem(401, "that token is not this console's", why)

    def log_in(self, request: Request) -> Response | None:
        """
        Answer a login; return None if its token is wrong or was already used.

        Only a click uses up the link. HEAD requests, with which programs check links,
        do not use it up, and neither do requests that a browser makes in advance while
        the user types.
        """
        if request.method == "HEAD":
            return Response()
        if _is_ahead_of_time(request):
            # the browser sends the request again when the user clicks
            return Response(status_code=503)
        given = request.query_params.get("token", "")
        is_lasting = self._lasting is not None and _same(given, self._lasting)
        if not is_lasting and (self._is_used or not _same(given, self.token)):
            return None
        self._is_used = self._is_used or not is_lasting
        answer = HTMLResponse(_WELCOME)
        answer.set_cookie(
            self._cookie, self._session, httponly=True, samesite="strict", path="/"
        )
        return answer

    def _is_bearer(self, request: Request) -> bool:
        if self._lasting is None:
            return False
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and _same(given.strip(), self._lasting)


def _is_ahead_of_time(request: Request) -> bool:
    headers = " ".join(request.headers.get(name, "") for name in _AHEAD_OF_TIME).lower()
    return any(word in headers for word in ("prefetch", "prerender", "preview"))


def _foreign(request: Request, host: str) -> Problem | None:
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    is_same = site in {None, "same-origin"} and origin in {None, f"http://{host}"}
    is_named = site is not None or origin is not None
    if is_named and is_same:
        return None
    return Problem(
        403,
        "this request does not come from a page of this console",
        "use the console's own pages, or a token from --token-file in a script",
    )


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())


class Guard:
    """Rejects requests that ``Auth`` refuses, and adds security headers to every answer."""

    def __init__(self, app: ASGIApp, auth: Auth) -> None:
        self._app = app
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._auth.refusal(request)
        app: ASGIApp = self._app if refused is None else refused.answer(request)
        # An asset's address contains a digest of its content, so the browser loads it
        # only once.
        is_asset = refused is None and request.url.path.startswith("/static/")
        kept = "private, max-age=31536000, immutable" if is_asset else "no-store"
        headers = {**_HEADERS, "Cache-Control": kept}
        await app(scope, receive, lambda message: send(_with(headers, message)))


def _with(headers: Mapping[str, str], message: Message) -> MutableMapping[str, Any]:
    if message["type"] == "http.response.start":
        found = MutableHeaders(scope=message)
        for name, value in headers.items():
            found.setdefault(name, value)
    return message
