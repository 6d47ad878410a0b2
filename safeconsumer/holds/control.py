"""Declares the interface of group control, whose package a consumer must not import."""

from collections.abc import Mapping
from typing import Any, Protocol


class GroupControl(Protocol):
    """The group control of one consumer, implemented by ``safeconsumer.group.member``."""

    def start(self) -> None:
        """Start to gate partitions, to read the holds topic, and to send reports."""

    def report_soon(self) -> None:
        """Send a report soon, because something changed."""

    def close(self, seconds: float | None = None) -> None:
        """Stop the threads and close the clients of group control."""


class Control(Protocol):
    """The settings of group control: :class:`safeconsumer.Control`."""

    def attach(self, client: Any, configs: Mapping[str, Any], /) -> GroupControl:  # noqa: ANN401 - defined in group
        """Start group control of one consumer."""
