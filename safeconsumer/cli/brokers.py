"""Asks whether a Kafka broker answers at an address."""

from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer._kafka.fixes.unmade import made
from safeconsumer.errors import SafeConsumerError

_REACH_MS = 5000


class BrokerNotReachableError(SafeConsumerError):
    """No Kafka broker answers at the address; the message names it."""


def reach(bootstrap: str, **config: Any) -> None:  # noqa: ANN401 - upstream's keys
    """
    Return once a Kafka broker answered at the address.

    Args:
        bootstrap: addresses separated by commas, as for kafka-python.
        config: further settings of the client.

    Raises:
        BrokerNotReachableError: none answered in 5 s.
    """
    try:
        made(
            KafkaAdminClient,
            bootstrap_servers=bootstrap.split(","),
            bootstrap_timeout_ms=_REACH_MS,
            **config,
        ).close()
    except (KafkaError, OSError, ValueError) as error:
        message = f"no Kafka broker answers at {bootstrap}"
        raise BrokerNotReachableError(message) from error
