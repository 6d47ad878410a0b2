"""Adds the current span to structlog's lines, as ``trace_id`` and ``span_id``."""

from typing import Any

from safeconsumer.errors import MissingExtraError

try:
    from opentelemetry.trace import (
        format_span_id,
        format_trace_id,
        get_current_span,
    )
except ImportError as error:
    _message = (
        f"trace ids need OpenTelemetry's API ({error}): "
        f"pip install 'safeconsumer[otel]'"
    )
    raise MissingExtraError(_message) from error


def add_trace_ids(
    _logger: Any,  # noqa: ANN401 - structlog's signature
    _method: str,
    event_dict: Any,  # noqa: ANN401 - likewise
) -> Any:  # noqa: ANN401 - likewise
    """
    Add the ids of the current span to a line, as hex; a structlog processor.

    If there is no span, or the line has the ids already, nothing is added. Put it
    before the renderer::

        structlog.configure(processors=[..., add_trace_ids, JSONRenderer()])
    """
    here = get_current_span().get_span_context()
    if here.is_valid:
        event_dict.setdefault("trace_id", format_trace_id(here.trace_id))
        event_dict.setdefault("span_id", format_span_id(here.span_id))
    return event_dict
