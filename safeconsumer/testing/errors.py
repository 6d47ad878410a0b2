"""Defines the errors of the test kit."""

from safeconsumer.errors.base import SafeConsumerError


class BrokerCommandError(SafeConsumerError):
    """The embedded broker refused a command; the message gives the reason."""


class EndlessRunError(SafeConsumerError):
    """``run_worker`` has made ``max_calls`` calls, and there are still records to process."""


class BrokerTypeError(SafeConsumerError, TypeError):
    """A ``kafka_broker`` fixture returned neither a broker nor a broker's address."""

    def __init__(self, given: object) -> None:
        super().__init__(
            f"{given!r} is no broker: expected an address such as 'localhost:9092', "
            "an object with bootstrap or get_bootstrap_server() that gives one, or "
            "one with client_config, group_config and create_topic()"
        )
