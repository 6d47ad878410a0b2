"""
Events as structlog lines.

An application that has configured structlog gets them there. One that has not gets
them through the standard ``logging`` module, logger ``safeconsumer``, so that a
drop-in never prints what nobody asked for.
"""

import logging
from typing import Any

import structlog

from safeconsumer.events.consumer import Event

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_standard = logging.getLogger("safeconsumer")
_through_logging: Any = structlog.wrap_logger(
    _standard,
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
)


def log_event(event: Event) -> None:
    """
    Write one line: ``safeconsumer.<event>``, with the event's fields as keys.
    """
    level = _LEVELS[event.severity]
    if structlog.is_configured():
        logger = structlog.get_logger("safeconsumer")
    elif _standard.isEnabledFor(level):
        logger = _through_logging
    else:
        return
    fields = {
        name: value
        for name, value in event.as_dict().items()
        if value is not None and name != "at"
    }
    name = f"safeconsumer.{event.name}"
    logger.log(level, name, **fields)
