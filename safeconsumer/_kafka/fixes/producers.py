"""
Ends a producer that nobody answers.
"""

from contextlib import suppress
from typing import Any

from kafka.errors import KafkaError

# For the thread of one whose records were given up.
_JOIN_SECONDS = 0.5


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
