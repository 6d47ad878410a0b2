"""
What the test kit raises by itself.
"""

from safeconsumer.errors import MissingExtraError, SafeConsumerError

INSTALL = "pip install 'safeconsumer[demo]'"


class EmbeddedBrokerUnavailableError(MissingExtraError):
    """
    The embedded broker cannot run here; the message says why and what to install.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"the embedded broker cannot start: {why}; {INSTALL}")


class BrokerCommandError(SafeConsumerError):
    """
    The embedded broker refused a command; the message names it and the reason.
    """


class EndlessRunError(SafeConsumerError):
    """
    ``run_worker`` called what it calls as often as it may, and records still come.
    """


class UnsupportedByBrokerError(SafeConsumerError):
    """
    What was asked is more than this kind of broker can; the message says which can.
    """
