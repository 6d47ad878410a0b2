"""A client whose pauses do nothing: no case about pausing may let it pass."""

from typing import Any

from safeconsumer.testing.cases import adapter


class Adapter(adapter.Adapter):
    """A class with kafka-python's methods, without its pauses."""

    def pause(self, partitions: list[Any], how: str = "named") -> None:
        """Do nothing."""

    def pause_topic(self, topic: str) -> None:
        """Do nothing."""

    def pause_pattern(self, pattern: str) -> None:
        """Do nothing."""

    def pause_all(self) -> None:
        """Do nothing."""
