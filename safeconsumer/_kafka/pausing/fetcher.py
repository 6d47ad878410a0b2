"""
Upstream's fetcher: parked data comes back, data of an ended ownership never does.
"""

import math
import threading
from collections.abc import Iterable

import kafka.errors as kafka_errors
from kafka.future import Future

from safeconsumer._kafka.pausing.draining import (
    DEFAULT_PARKED_MAX_BYTES,
    Drained,
    DrainingFetcher,
)


class PauseSafeFetcher(DrainingFetcher):
    """
    Keeps fetched records of quiet partitions, and purges those of ended ownerships.

    Differences from upstream 3.0.12, each with a regression test:

    - Half-read data of a resumed partition is taken up again whatever was read
      meanwhile; upstream waits for a slot that never becomes free.
    - Each fetch is stamped with the ownership epoch it was made in; answers and
      buffers of another epoch are dropped, in flight too.
    - One snapshot of what is quiet rules a whole drain.
    - Parked data is bounded in bytes.
    - A lifted hold wakes a waiting ``poll``.

    Works constructed as upstream's class is and adopted by ``__class__`` (then call
    :meth:`prepare`), beside a plain ``SubscriptionState`` too.

    Thread rules: everything on the polling thread, but :meth:`wake` on any and
    ``_create_fetch_requests`` and ``_fetchable_partitions`` on the IO thread.
    """

    def prepare(self, parked_max_bytes: int = DEFAULT_PARKED_MAX_BYTES) -> None:
        """
        Make what this class needs beyond upstream's attributes.
        """
        super().prepare(parked_max_bytes)
        self._lifted = threading.Event()
        self._waker: Future | None = None

    def fetch_records(
        self,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
        timeout_ms: float | None = None,
    ) -> tuple[Drained, bool]:
        """
        Drain, send the next fetches, and wait for an answer or a lifted hold.

        As upstream's method of this name, but a hold that is lifted or expires while
        it waits ends the wait, with nothing to wait for too.
        """
        self._lifted.clear()
        records, partial = self.fetched_records(max_records, update_offsets)
        if not partial:
            self.send_fetches()
        if records:
            return records, False
        waited_on = list(self._fetch_futures)
        if self._reset_task is not None and not self._reset_task.is_done:
            waited_on.append(self._reset_task)
        timeout_ms = self._until_expiry(timeout_ms)
        if waited_on:
            self._wait_for_any(waited_on, timeout_ms)
        elif not self._wait_for_lift(timeout_ms):
            return records, not timeout_ms
        records, _ = self.fetched_records(max_records, update_offsets)
        return records, False

    def wake(self) -> None:
        """
        End the wait of :meth:`fetch_records`, if one is under way. Any thread.
        """
        self._lifted.set()
        wakeup = self._waker
        if wakeup is not None and not wakeup.is_done:
            try:
                self._net.call_soon_threadsafe(lambda: _resolve(wakeup))
            except (RuntimeError, kafka_errors.KafkaError):
                return  # the loop has ended, and with it the wait

    def _wait_for_any(
        self, futures: Iterable[Future], timeout_ms: float | None
    ) -> None:
        wakeup = Future()
        self._waker = wakeup
        try:
            for future in futures:
                future.add_both(lambda _: _resolve(wakeup))
            if not self._lifted.is_set():
                self._net.run(self._manager.wait_for, wakeup, timeout_ms)
        except kafka_errors.KafkaTimeoutError:
            return
        finally:
            self._waker = None

    def _wait_for_lift(self, timeout_ms: float | None) -> bool:
        # Nothing in flight: upstream sleeps one backoff and looks again, blind to a
        # resume from another thread. This waits as long, but can be woken.
        backoff_ms = self.config["retry_backoff_ms"]
        wait_ms = backoff_ms if timeout_ms is None else min(timeout_ms, backoff_ms)
        self._lifted.wait(wait_ms / 1000)
        return bool(wait_ms > 0)

    def _until_expiry(self, timeout_ms: float | None) -> float | None:
        if self._ours is None:
            return timeout_ms
        left = self._ours.ledger.seconds_to_next_expiry()
        if left == math.inf:
            return timeout_ms
        left_ms = max(0.0, left * 1000 + 1)  # one on top: never early
        return left_ms if timeout_ms is None else min(left_ms, timeout_ms)


def _resolve(wakeup: Future) -> None:
    if not wakeup.is_done:
        wakeup.success(None)
