"""
Writes events as structlog lines.

If the application has configured structlog, the lines go there, otherwise to the standard
``logging`` module, logger ``safeconsumer``. If that is not configured either, Python
prints warnings and errors, and no other lines, to stderr.
"""

import logging
import sys
from functools import cache
from typing import Any

from safeconsumer.events.base import Event

_standard = logging.getLogger("safeconsumer")


def prepare() -> None:
    """Import structlog now, if lines will be written, and not in the middle of a join."""
    if _standard.isEnabledFor(logging.INFO):
        import structlog  # noqa: F401, PLC0415 - 0.2 s on a busy machine


def log_event(event: Event) -> None:
    """Write the event's line, at the level of its severity."""
    is_wanted = _standard.isEnabledFor(getattr(logging, event.severity.upper()))
    # If the program has not imported structlog, it has not configured it. The import takes
    # 2 MB, 7 with rich: too much for a line that is not written.
    if not is_wanted and "structlog" not in sys.modules:
        return
    import structlog  # noqa: PLC0415 - see above

    if structlog.is_configured():
        logger = structlog.get_logger("safeconsumer")
    elif is_wanted:
        logger = _through_logging()
    else:
        return
    name, fields = event.as_log_line()
    # every wrapper class has these methods
    getattr(logger, event.severity)(name, **fields)


@cache
def _through_logging() -> Any:  # noqa: ANN401 - structlog's bound loggers have many classes
    import structlog  # noqa: PLC0415 - as above

    return structlog.wrap_logger(
        _standard,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
