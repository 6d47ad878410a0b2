"""
Writes events as log lines.

If the application has configured structlog, the lines go to structlog, otherwise to the
logger ``safeconsumer`` of the standard ``logging`` module. If ``logging`` is not
configured either, Python prints only warnings and errors, to stderr.

This module never imports structlog, because an application that has configured
structlog has already imported it. The import takes 2 MB of memory (7 MB with rich), and
up to ten seconds on a busy machine. During the import, the thread that delivers the
first event would be stuck in its ``pause`` or ``resume``, and the events of all other
threads would have to wait.
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any

from safeconsumer.events.base import Event

_standard = logging.getLogger("safeconsumer")


def log_event(event: Event) -> None:
    """Write the event's line, at the level of its severity."""
    structlog: Any = sys.modules.get("structlog")
    # A module that another thread is still importing may lack its functions.
    is_configured = getattr(structlog, "is_configured", None)
    if is_configured is not None and is_configured():
        name, fields = event.as_log_line()
        logger = structlog.get_logger("safeconsumer")
        # every wrapper class has these methods
        getattr(logger, event.severity)(name, **fields)
        return
    level = getattr(logging, event.severity.upper())
    if _standard.isEnabledFor(level):
        _standard.log(level, _line(*event.as_log_line()))


def _line(name: str, fields: Mapping[str, object]) -> str:
    # The format of structlog's KeyValueRenderer.
    named = {"event": name, **fields}
    return " ".join(f"{key}={value!r}" for key, value in named.items())
