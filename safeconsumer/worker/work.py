"""
What the poll loop asks of whoever works on what it polled.
"""

from collections.abc import Sequence
from typing import Protocol

from safeconsumer.worker.held import Epoch
from safeconsumer.worker.progress import Chunk


class Work(Protocol):
    """
    Who works on what is pumped.
    """

    def admit(self, epoch: Epoch, chunk: Chunk) -> None:
        """
        Take what a poll returned.
        """

    def drop_queued(self, epochs: Sequence[Epoch]) -> None:
        """
        Begin nothing more of these.
        """

    def halt(self) -> None:
        """
        Begin nothing more until told to go on.
        """

    def go_on(self) -> None:
        """
        Begin again.
        """

    def running(self, epochs: Sequence[Epoch] | None = None) -> int:
        """
        Return how many records are being worked on.
        """

    def has_waiting(self, epoch: Epoch) -> bool:
        """
        Tell whether something failed keeps the epoch waiting.
        """

    def is_starving(self, epoch: Epoch | None) -> bool:
        """
        Tell whether nothing of the epoch is, or could be, worked on now.
        """
