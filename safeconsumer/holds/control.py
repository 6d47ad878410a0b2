"""Declares the interface of group control; a consumer must not import its package."""

from collections.abc import Mapping
from typing import Any, Protocol


class GroupControl(Protocol):
    """Group control for one consumer; implemented by ``safeconsumer.group.member``."""

    def start(self) -> None:
        """Start to gate partitions, read the holds topic, and send reports."""

    def report_soon(self) -> None:
        """Send a report soon, because something changed."""

    def close(self, seconds: float | None = None) -> None:
        """Stop group control's threads, and close its clients."""


class Control(Protocol):
    """The settings of group control: :class:`safeconsumer.Control`."""

    def attach(self, client: Any, configs: Mapping[str, Any], /) -> GroupControl:  # noqa: ANN401 - defined in group
        """Start group control for one consumer."""
