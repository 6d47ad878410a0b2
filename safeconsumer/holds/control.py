"""Describes group control as a consumer uses it; a consumer must not import that room."""

from collections.abc import Mapping
from typing import Any, Protocol


class GroupControl(Protocol):
    """The control of one consumer; ``safeconsumer.group.member`` implements it."""

    def start(self) -> None:
        """Gate partitions from now on, read the holds topic, and send reports."""

    def report_soon(self) -> None:
        """Send a report soon, because something changed."""

    def close(self, seconds: float | None = None) -> None:
        """End its threads and clients."""


class Control(Protocol):
    """The settings of group control: :class:`safeconsumer.Control`."""

    def attach(self, client: Any, configs: Mapping[str, Any], /) -> GroupControl:  # noqa: ANN401 - defined in group
        """Begin to control one consumer."""
