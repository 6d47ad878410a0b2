"""Provides producers without traces, with one request per topic and a bounded close."""

import inspect
import time
from contextlib import suppress
from typing import Any

from kafka import KafkaProducer
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)

from safeconsumer._kafka.network import join_sender
from safeconsumer._kafka.of_group.no_topics import NoTopicsClient
from safeconsumer._waits import InterruptibleEvent

# Seconds to wait for the thread of a producer whose unanswered records were dropped.
_JOIN_SECONDS = 0.5

_LEAST_DELAY_MS = 50.0


class PatientClient(NoTopicsClient):
    """
    A producer's network client, which does not spin while its broker is silent.

    If a broker must get no further request, because it has too many unanswered ones or
    its connection is not established yet, kafka-python 3.0.12 returns 0 ms, and the
    producer calls this again without pause. kafka-python returns backoffs in seconds.
    """

    def connection_delay(self, node_id: object) -> float:
        """Return the milliseconds to wait; an event on a connection ends the wait."""
        seconds: float = super().connection_delay(node_id)
        return max(1000 * seconds, _LEAST_DELAY_MS)


class UntracedProducer(KafkaProducer):
    """
    A ``KafkaProducer`` with upstream's own ``send``, even if a tool has wrapped it.

    OpenTelemetry's instrumentor (0.66b1) makes a span of each send, and has no key in
    the context that would turn this off. The instrumentor also writes headers, which
    control records must not have, and traces would be full of internal records.
    """

    def send(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - upstream's
        return inspect.unwrap(KafkaProducer.send)(self, *args, **settings)

    def __del__(self) -> None:
        # Upstream raises if a report of a dropped member has no response yet.
        with suppress(KafkaError):
            super().__del__()


class AskingOnceProducer(UntracedProducer):
    """
    A producer that raises as soon as a broker reports that a topic does not exist.

    kafka-python 3.0.12 repeats the request ten times a second for ``max_block_ms``, and
    logs an error for each response.
    """

    def _wait_on_metadata(self, topic: str, max_wait_ms: float) -> Any:  # noqa: ANN401 - upstream's
        until = time.monotonic() + max_wait_ms / 1000
        self._sender.add_topic(topic)
        while self._metadata.partitions_for_topic(topic) is None:
            answered = InterruptibleEvent()
            asked = self._metadata.request_update()
            asked.add_both(lambda *_, answered=answered: answered.set())
            self._sender.wakeup()
            if not answered.wait(max(0.0, until - time.monotonic())):
                break
            if isinstance(asked.exception, UnknownTopicOrPartitionError):
                message = f"there is no topic {topic}"
                raise KafkaTimeoutError(message)  # send() raises no broker errors
        left = max(0.0, until - time.monotonic())
        return super()._wait_on_metadata(topic, 1000 * left)


def end(producer: Any, seconds: float) -> None:  # noqa: ANN401 - kafka-python is untyped
    """
    Close a producer; drop records that are not acknowledged in time, without an error.

    The call may take half a second more than ``seconds``.

    kafka-python 3.0.12 waits for unanswered records before it closes anything. If that
    takes too long, it raises and leaves its thread running; the garbage collector then
    calls ``close`` again, with the same effect.
    """
    with suppress(KafkaError):
        producer.close(timeout=seconds)
        return
    producer._sender.force_close()
    join_sender(producer, _JOIN_SECONDS)
    with suppress(KafkaError):
        producer.close(timeout=0)
