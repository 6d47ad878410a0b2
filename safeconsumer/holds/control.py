"""Describes what a consumer uses of group control, which it must not import: it is above."""

from collections.abc import Mapping
from typing import Any, Protocol


class GroupControl(Protocol):
    """The parts of one consumer that is controlled: ``safeconsumer.group.member``'s."""

    def start(self) -> None:
        """Gate partitions from now on, read the holds topic, and report."""

    def report_soon(self) -> None:
        """Report soon, because something changed."""

    def close(self, seconds: float | None = None) -> None:
        """End its threads and clients."""


class Control(Protocol):
    """The settings of group control: :class:`safeconsumer.Control`."""

    def attach(self, client: Any, configs: Mapping[str, Any], /) -> GroupControl:  # noqa: ANN401 - group says what it needs of it
        """Begin to control one consumer."""
