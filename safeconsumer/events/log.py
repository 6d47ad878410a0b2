"""
Writes events as structlog lines.

If the application has configured structlog, the lines go there, otherwise to the standard
``logging`` module, logger ``safeconsumer``. If that is not configured either, Python
prints warnings and errors, and no other lines, to stderr.

This module never imports structlog: an application that has configured it has imported it.
The import takes 2 MB, 7 with rich, and on a busy machine ten seconds. Until then the
thread that hands out the first line would not return from its ``pause`` or ``resume``, and
the events of all other threads would wait.
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
    # A module that another thread is importing has no functions yet.
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
    # As structlog's KeyValueRenderer writes it.
    named = {"event": name, **fields}
    return " ".join(f"{key}={value!r}" for key, value in named.items())
