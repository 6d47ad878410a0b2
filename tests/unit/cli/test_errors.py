"""What went wrong at a cluster, as commands say it: the status, and the broker's words."""

import errno
import ssl
from contextlib import closing

import click
import kafka.errors as kafka_errors
import pytest
from click.testing import CliRunner

from safeconsumer._kafka.network import NetworkSelector, Task
from safeconsumer.cli.errors import Status, explained, status_of
from safeconsumer.errors import ControlTopicError
from safeconsumer.group.topics import ACLS
from safeconsumer.group.troubles import error_text
from tests.harness.listing import short


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
            kafka_errors.RequestTimedOutError("Request timed out after 30000 ms"),
            Status.UNREACHABLE,
            "no answer from the broker: RequestTimedOutError: Request timed out after",
        ),
        (
            kafka_errors.RequestTimedOutError(),
            Status.UNREACHABLE,
            "the broker cannot do it now: RequestTimedOutError",
        ),
        (
            kafka_errors.KafkaTimeoutError("Unable to bootstrap"),
            Status.UNREACHABLE,
            "no answer from the broker: KafkaTimeoutError: Unable to bootstrap",
        ),
        (
            kafka_errors.IncompatibleBrokerVersion("no DescribeGroupsRequest"),
            Status.REFUSED,
            "the broker cannot do that: IncompatibleBrokerVersion: no Describe",
        ),
        (
            kafka_errors.UnknownBrokerIdError(0),
            Status.UNREACHABLE,
            "no broker is known to be in charge of the cluster: UnknownBrokerIdError",
        ),
        (
            kafka_errors.UnknownTopicOrPartitionError("orders"),
            Status.FAILED,
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
            "a setting is not acceptable",
        ),
        (ConnectionResetError("x"), Status.UNREACHABLE, "no answer from the broker"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            Status.FAILED,
            "this system refuses: [Errno 28] No space left on device",
        ),
        (ControlTopicError("x"), Status.REFUSED, "a control topic is unfit"),
    ],
    ids=short,
)
def test_one_table_tells_errors_apart(error, status, words):
    assert status_of(error) is status
    assert error_text(error).startswith(words)


def test_advice_is_given_once():
    """Errors of our own have it in their text."""
    error = kafka_errors.TopicAuthorizationFailedError(f"no right to read t: {ACLS}")
    assert error_text(error).count(ACLS) == 1


@click.command()
@click.option("--interrupted", is_flag=True)
@click.pass_context
def breaking(context, *, interrupted):
    """End as kafka-python's event loop does, interrupted or not."""
    task = Task(lambda: None)
    loop = NetworkSelector()
    with closing(loop), explained(context):
        try:
            if interrupted:
                raise KeyboardInterrupt
        finally:
            loop._task_done(task)


def test_an_interrupt_that_the_event_loop_hides_is_one():
    """130 and a line, where "Task is not done yet!" took its place."""
    runner = CliRunner()
    ended = runner.invoke(breaking, ["--interrupted"])
    assert (ended.exit_code, ended.output) == (
        Status.INTERRUPTED,
        "safeconsumer: interrupted\n",
    )
    assert isinstance(runner.invoke(breaking).exception, RuntimeError)


@click.command()
@click.pass_context
def full(context):
    """Print to a full disk."""
    with explained(context):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_output_that_the_system_refuses_is_no_outcome():
    """The program ends with 70; 1 would say that letters failed, or that nothing is quiet."""
    assert isinstance(CliRunner().invoke(full).exception, OSError)
