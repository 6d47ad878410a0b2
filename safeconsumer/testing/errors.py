"""Defines the errors of the test kit."""

from safeconsumer.errors.base import SafeConsumerError


class BrokerCommandError(SafeConsumerError):
    """The embedded broker refused a command; the message names it and the reason."""


class EndlessRunError(SafeConsumerError):
    """``run_worker`` has made as many calls as it may, and records still come."""


class BrokerTypeError(SafeConsumerError, TypeError):
    """What a ``kafka_broker`` fixture gave, or an address, is nothing that can be used."""

    def __init__(self, given: object) -> None:
        super().__init__(
            f"{given!r} is no broker: expected an address such as 'localhost:9092', "
            "an object with bootstrap or get_bootstrap_server() that gives one, or "
            "one with client_config, group_config and create_topic()"
        )
