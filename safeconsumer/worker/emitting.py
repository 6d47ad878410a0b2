"""
Events of workers, on their way to hooks.
"""

import time
from collections.abc import Callable
from typing import Any

from safeconsumer.events.consumer import Event
from safeconsumer.events.dispatch import Dispatcher, Hook, LazyHook


class Emitter:
    """
    Makes events and hands them to structlog and to a hook; never raises.
    """

    def __init__(
        self,
        on_event: Hook | None,
        client_id: str | None,
        group_id: str | None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        structlog = LazyHook("safeconsumer.events.log:log_event")
        hooks = (structlog,) if on_event is None else (structlog, on_event)
        self._dispatcher = Dispatcher(hooks)
        self._ids = {"client_id": client_id, "group_id": group_id}
        self._wall = wall

    def __call__(self, kind: Callable[..., Event], **fields: Any) -> None:  # noqa: ANN401 - the event's own
        """
        Make the event and hand it on.
        """
        self._dispatcher.dispatch(kind(at=self._wall(), **self._ids, **fields))
