"""Remembers the answer to a join until a ``poll`` applies it."""

import time
from typing import NamedTuple


class Joined(NamedTuple):
    """
    A join that has succeeded on the wire and waits for a ``poll`` to apply it.

    Attributes:
        generation: upstream's object; it is replaced when the membership changes.
        assignment: the encoded answer to SyncGroup.
        at: when it succeeded, in seconds on the monotonic clock.
    """

    generation: object
    assignment: bytes
    at: float

    def is_current(
        self, generation: object, last_heartbeat: float, session_timeout: float
    ) -> bool:
        """
        Tell whether it can still be applied.

        Heartbeats in the meantime would have shown that the generation has ended, but
        not if none of them got through.
        """
        silent = time.monotonic() - max(self.at, last_heartbeat)
        return self.generation is generation and silent < session_timeout

    async def answer(self) -> bytes:
        """Give the answer once more."""
        return self.assignment
