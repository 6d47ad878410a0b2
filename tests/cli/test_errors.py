"""
What went wrong at a cluster, as commands say it: the status, and the broker's words.
"""

import errno
import ssl

import kafka.errors as kafka_errors
import pytest

from safeconsumer.cli.errors import Status, said, status_of
from safeconsumer.errors import ControlTopicError


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (
            kafka_errors.SaslAuthenticationFailedError("Invalid username"),
            Status.REFUSED,
            "the broker refuses the login: SaslAuthenticationFailedError: Invalid",
        ),
        (
            kafka_errors.TopicAuthorizationFailedError("orders"),
            Status.REFUSED,
            "the broker refuses: TopicAuthorizationFailedError: orders; safeconsumer",
        ),
        (
            kafka_errors.PolicyViolationError("three replicas, please"),
            Status.REFUSED,
            "the broker refuses: PolicyViolationError: three replicas, please",
        ),
        (
            kafka_errors.MessageSizeTooLargeError(),
            Status.REFUSED,
            "the broker refuses: MessageSizeTooLargeError",
        ),
        (
            kafka_errors.NotEnoughReplicasError(),
            Status.UNREACHABLE,
            "the broker cannot do it now: NotEnoughReplicasError; try again",
        ),
        (
            kafka_errors.KafkaTimeoutError("Unable to bootstrap"),
            Status.UNREACHABLE,
            "no answer from the broker: KafkaTimeoutError: Unable to bootstrap",
        ),
        (
            kafka_errors.UnknownTopicOrPartitionError("orders"),
            Status.MISSING,
            "no such topic: UnknownTopicOrPartitionError: orders",
        ),
        (
            kafka_errors.KafkaConnectionError("Handshake failed: [SSL: CERTIFICATE_"),
            Status.REFUSED,
            "no secure connection to the broker",
        ),
        (ssl.SSLError(1, "x"), Status.REFUSED, "no secure connection to the broker"),
        (
            kafka_errors.KafkaConfigurationError("no setting x"),
            Status.USAGE,
            "a setting is no good",
        ),
        (ConnectionResetError("x"), Status.UNREACHABLE, "no answer from the broker"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            Status.FAILED,
            "this system refuses: [Errno 28] No space left on device",
        ),
        (ControlTopicError("x"), Status.REFUSED, "a control topic is unfit"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_one_table_tells_errors_apart(
    error: Exception, status: Status, words: str
) -> None:
    assert status_of(error) is status
    assert said(error).startswith(words)
