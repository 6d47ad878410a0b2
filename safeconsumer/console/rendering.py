"""
Renders templates as pages that viewers share.

A page is rendered once for each version of the data. An age, or the time until a hold
expires, changes without new data, so the page contains a placeholder instead, which is
replaced when the page is sent. In the browser, a script updates the times every second.
"""

import re
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from safeconsumer.group.durations import duration_text
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.report_wire import kept_holds_text
from safeconsumer.group.verdicts import lost_stream_text
from safeconsumer.holds.explain import printable, utc

STATIC = Path(__file__).parent / "static"
_JUST_NOW = 2.0
# The maximum number of pages that are kept for one version; each search and each page
# of a list counts as a page.
_MOST_KEPT = 64
# Text from users never contains this character, and pages must not contain it.
_PLACEHOLDER = re.compile("\0([^\0]*)\0")


class Page(HTMLResponse):
    """
    A page as it is sent to a browser.

    Args:
        text: the page with its placeholders.
        known: the current snapshot, which determines the values of the placeholders.
        status: the HTTP status.

    Attributes:
        text: the page with its placeholders.
    """

    def __init__(self, text: str, known: Snapshot, status: int = 200) -> None:
        self.text = text
        super().__init__(
            _PLACEHOLDER.sub(lambda one: _moment(one[1], known), text), status
        )

    @property
    def tag(self) -> str:
        """The entity tag, which changes with the content but not with the passing of time."""
        return f'W/"{_token(self.text)}"'


def _moment(name: str, known: Snapshot) -> str:
    if name == "age":
        return ago(known.age)
    if name == "seconds":
        return f"{known.age:.1f}"
    if name == "now":
        return now_text(known)
    return "" if known.now is None else _distance(float(name), known.now)


def now_text(known: Snapshot) -> str:
    """Return the broker's time in the format that the script reads; "" if unknown."""
    return "" if known.now is None else f"{known.now:.1f}"


class SharedPages:
    """
    The pages for the newest version of the data, which all viewers share.

    Thread rules: any thread may use this; one page is rendered at a time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._version: Hashable = None
        self._pages: dict[Hashable, Page] = {}

    def of(self, version: Hashable, key: Hashable, render: Callable[[], Page]) -> Page:
        """Return a page; render it if this version has not been rendered yet."""
        with self._lock:
            if version != self._version or len(self._pages) >= _MOST_KEPT:
                self._version, self._pages = version, {}
            if key not in self._pages:
                self._pages[key] = render()
            return self._pages[key]


@cache
def templates() -> Environment:
    """Return the template environment, with the filters that the templates use."""
    found = Environment(
        loader=PackageLoader("safeconsumer.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        asset=_asset,
        clock=_clock,
        lost_stream_text=lost_stream_text,
        kept_holds_text=kept_holds_text,
        linked=_linked,
        placeholder=lambda text: Markup("\0{}\0").format(text),
        number="{:,}".format,
        token=_token,
        utc=utc,
        words=duration_text,
    )
    return found


def _token(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


@cache
def _asset(name: str) -> str:
    made = sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{made}"


def _shown(value: object) -> object:
    # Names come from other people, and invisible characters in them could mislead a
    # reader.
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return printable(str(value)) if is_text else value


# A link must show its true target, so it must not contain invisible or look-alike
# characters.
_URL = re.compile(r"https?://[!#-;=?-~]*[A-Za-z0-9/=]")


def _linked(text: str) -> Markup:
    """Return text with its web addresses as links that do not send a referrer."""
    parts, at = [], 0
    for found in _URL.finditer(text):
        url = escape(found[0])
        link = Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(url)
        parts += [escape(printable(text[at : found.start()])), link]
        at = found.end()
    return Markup().join([*parts, escape(printable(text[at:]))])


def ago(seconds: float) -> str:
    """Return an age as text."""
    return "just now" if seconds < _JUST_NOW else f"{duration_text(seconds)} ago"


def _clock(at: float) -> str:
    then, now = datetime.fromtimestamp(at, UTC), datetime.now(UTC)
    same_day = then.date() == now.date()
    return then.strftime("%H:%M:%S UTC" if same_day else "%Y-%m-%d %H:%M UTC")


def _distance(at: float, now: float) -> str:
    if abs(at - now) < 1:
        return "now"
    text = duration_text(abs(at - now))
    return f"in {text}" if at > now else f"{text} ago"
