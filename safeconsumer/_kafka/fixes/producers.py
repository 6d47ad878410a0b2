"""
A producer that no tracer sees; and ending one that nobody answers.
"""

import inspect
from contextlib import suppress
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

# For the thread of one whose records were given up.
_JOIN_SECONDS = 0.5


class UntracedProducer(KafkaProducer):
    """
    A ``KafkaProducer`` whose ``send`` is upstream's own, whoever has wrapped that.

    OpenTelemetry's instrumentor (0.66b1) makes a span of each send, and looks at no key
    of a context that would keep it from that. It writes headers, too: control records
    have none, and traces are full of their senders' own business.
    """

    def send(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - upstream's
        """
        Send a record, as upstream's does.
        """
        return inspect.unwrap(KafkaProducer.send)(self, *args, **settings)


def end(producer: Any, seconds: float) -> None:  # noqa: ANN401 - kafka-python is untyped
    """
    Close a producer; what has no answer in so many seconds is given up, and not told.

    Ending what was given up may take half a second more.

    kafka-python 3.0.12 waits for what is on its way before it closes anything. If that
    takes too long it raises, its thread goes on, and it does both once more when it is
    collected.
    """
    with suppress(KafkaError):
        producer.close(timeout=seconds)
        return
    producer._sender.force_close()
    producer._sender.join(_JOIN_SECONDS)
    with suppress(KafkaError):
        producer.close(timeout=0)
