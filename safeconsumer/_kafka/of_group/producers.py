"""Provides producers that create no traces, request a topic once, and close in time."""

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

# Seconds to wait for a producer's thread after its unanswered records were dropped.
_JOIN_SECONDS = 0.5

_LEAST_DELAY_MS = 50.0


class PatientClient(NoTopicsClient):
    """
    A producer's network client that does not spin while its broker does not respond.

    If no further request may be sent to a broker, because too many are unanswered or
    its connection is not established yet, kafka-python 3.0.12 returns 0 ms, and the
    producer calls this method in a busy loop. kafka-python also returns backoffs in
    seconds instead of milliseconds.
    """

    def connection_delay(self, node_id: object) -> float:
        """Return how many milliseconds to wait; an event on a connection ends the wait."""
        seconds: float = super().connection_delay(node_id)
        return max(1000 * seconds, _LEAST_DELAY_MS)


class UntracedProducer(KafkaProducer):
    """
    A ``KafkaProducer`` that uses upstream's own ``send`` even if a tool has wrapped it.

    OpenTelemetry's instrumentor (0.66b1) creates a span for each send, and no context
    key turns this off. Traces would be full of internal records. The instrumentor also
    adds headers, which control records must not have.
    """

    def send(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - upstream's
        return inspect.unwrap(KafkaProducer.send)(self, *args, **settings)

    def __del__(self) -> None:
        # Upstream would raise if the broker has not yet acknowledged the report of a
        # dropped member.
        with suppress(KafkaError):
            super().__del__()


class AskingOnceProducer(UntracedProducer):
    """
    A producer that raises as soon as a broker has reported that a topic does not exist.

    kafka-python 3.0.12 repeats its request ten times a second, for ``max_block_ms``,
    and logs an error for each response.
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
    Close a producer; silently drop records that are not acknowledged in time.

    The call may take half a second more than ``seconds``.

    kafka-python 3.0.12 waits for unanswered records before it closes anything. If that
    takes too long, ``close`` raises, and the producer's thread keeps running. The
    garbage collector later calls ``close`` again, with the same effect.
    """
    with suppress(KafkaError):
        producer.close(timeout=seconds)
        return
    producer._sender.force_close()
    join_sender(producer, _JOIN_SECONDS)
    with suppress(KafkaError):
        producer.close(timeout=0)
