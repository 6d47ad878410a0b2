"""The other member of a scenario's group: it comes, takes partitions, and goes."""

import threading
from typing import Any

from kafka import TopicPartition

from safeconsumer.demo.results import CannotPlayError
from safeconsumer.demo.stage import FIRST_POLL_MS, PATIENCE, Stage

NAME = "other"

# Short, so that it leaves soon after it is told to.
POLL_MS = 250

# A member that lost its membership cannot say goodbye; do not wait long for it.
CLOSE_MS = 2000


class Other:
    """
    A second member with the same client, on its own thread; it commits nothing.

    Args:
        stage: where it plays.
        topics: what it subscribes to.
        pattern: the same by a pattern.
        is_judged: whether its deliveries count.
        configs: kafka-python's.
    """

    def __init__(
        self,
        stage: Stage,
        *topics: str,
        pattern: str | None = None,
        is_judged: bool = False,
        **configs: Any,  # noqa: ANN401 - kafka-python's keys and types
    ) -> None:
        self._stage = stage
        self._is_judged = is_judged
        self._stopped = threading.Event()
        self._works = threading.Event()
        self._work_seconds = 0.0
        self._error: BaseException | None = None
        self._consumer = stage.consumer(stage.client.make, **configs)
        self._consumer.subscribe(topics, pattern=pattern)
        self._thread = threading.Thread(target=self._run, name="other member")
        self._thread.start()
        stage.at_end(self.leave)

    def assignment(self) -> set[TopicPartition]:
        """
        Return what is assigned to it.

        Raises:
            CannotPlayError: it has failed; the message says how.
        """
        if self._error is not None:
            message = f"the other member failed: {self._error!r}"
            raise CannotPlayError(message) from self._error
        return set(self._consumer.assignment())

    def owns(self, partitions: int) -> bool:
        """Whether so many partitions are assigned to it."""
        return len(self.assignment()) == partitions

    def await_all(self) -> None:
        """Return once it has every partition there is."""
        stage = self._stage
        stage.until(
            lambda: self.owns(len(stage.partitions)),
            "the other member to join",
            lambda: stage.rest(0.05),
        )

    def work(self, seconds: float) -> None:
        """
        Stop polling for a while, as one that is busy with its records.

        Returns once it has stopped.
        """
        self._work_seconds = seconds
        self._works.wait(PATIENCE)

    def leave(self) -> None:
        """Leave the group; safe to call again."""
        self._stopped.set()
        self._thread.join(PATIENCE)
        self._consumer.close(autocommit=False, timeout_ms=CLOSE_MS)

    def _run(self) -> None:
        try:
            self._poll(FIRST_POLL_MS)
            while not self._stopped.is_set():
                self._poll(POLL_MS)
                if self._work_seconds:
                    self._works.set()
                    self._stopped.wait(self._work_seconds)
                    self._work_seconds = 0.0
        except Exception as error:  # noqa: BLE001 - told by the next assignment()
            self._error = error

    def _poll(self, timeout_ms: int) -> None:
        batches = self._consumer.poll(timeout_ms)
        if not self._is_judged:
            return
        tally = self._stage.tally
        tally.owned(NAME, self._consumer.assignment())
        for tp, records in batches.items():
            for record in records:
                tally.delivered(NAME, tp, record.offset)
