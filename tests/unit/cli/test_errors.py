"""Tests the exit status and the message of cluster errors in commands."""

import errno
import ssl
from contextlib import closing

import click
import kafka.errors as kafka_errors
import pytest
from click.testing import CliRunner

from safeconsumer._kafka.network import NetworkSelector, Task
from safeconsumer._kafka.of_group import login
from safeconsumer.cli.errors import Status, explained, status_of
from safeconsumer.errors import ControlTopicError
from safeconsumer.group.topics import ACLS
from safeconsumer.group.troubles import error_text

AWAY, REFUSED, USAGE = Status.UNREACHABLE, Status.REFUSED, Status.USAGE
NO_ANSWER = "no answer from the broker"


@pytest.mark.parametrize(
    ("name", "status", "start"),
    [
        ("SaslAuthenticationFailedError", REFUSED, "the broker refuses the login"),
        ("TopicAuthorizationFailedError", REFUSED, "the broker refuses"),
        ("PolicyViolationError", REFUSED, "the broker refuses"),
        ("MessageSizeTooLargeError", REFUSED, "the broker refuses"),
        ("NotEnoughReplicasError", AWAY, "the broker cannot do it now"),
        ("RequestTimedOutError", AWAY, "the broker cannot do it now"),
        ("KafkaTimeoutError", AWAY, NO_ANSWER),
        ("IncompatibleBrokerVersion", REFUSED, "the broker cannot do that"),
        (
            "UnknownBrokerIdError",
            AWAY,
            "the cluster has no known controller",
        ),
        ("UnknownTopicOrPartitionError", Status.FAILED, "no such topic"),
        ("KafkaConfigurationError", USAGE, "a setting is not acceptable"),
    ],
)
def test_kafka_error_has_a_status_and_keeps_its_message(name, status, start):
    error = getattr(kafka_errors, name)("three replicas, please")
    assert status_of(error) is status
    assert error_text(error).startswith(f"{start}: {name}: three replicas, please")


SSL = "no secure connection to the broker"


@pytest.mark.parametrize(
    ("error", "status", "start"),
    [
        (kafka_errors.RequestTimedOutError("Request timed out after"), AWAY, NO_ANSWER),
        (kafka_errors.KafkaConnectionError("[SSL: CERTIFICATE_"), REFUSED, SSL),
        (ssl.SSLError(1, "x"), REFUSED, SSL),
        (ConnectionResetError("x"), AWAY, NO_ANSWER),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            Status.FAILED,
            "this system refuses: [Errno 28] No space left on device",
        ),
        (ControlTopicError("x"), REFUSED, "a control topic is unfit"),
    ],
    ids=["client's timeout", "handshake", "tls", "reset", "full disk", "control topic"],
)
def test_other_error_has_a_status_and_a_cause(error, status, start):
    assert status_of(error) is status
    assert error_text(error).startswith(start)


def test_advice_is_given_once():
    """An error raised by the library already contains the advice."""
    error = kafka_errors.TopicAuthorizationFailedError(f"no right to read t: {ACLS}")
    assert error_text(error).count(ACLS) == 1


def ended(body):
    """Run a command whose body is this function, and return its result."""

    @click.command()
    @click.pass_context
    def command(context):
        with explained(context):
            body()

    return CliRunner().invoke(command)


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_interrupt_that_the_event_loop_turns_into_an_error_gives_exit_status_130(
    is_interrupted,
):
    """Without an interrupt, the loop's "Task is not done yet!" is a defect."""

    def body():
        task, loop = Task(lambda: None), NetworkSelector()
        with closing(loop):
            try:
                if is_interrupted:
                    raise KeyboardInterrupt
            finally:
                loop._task_done(task)

    result = ended(body)
    if is_interrupted:
        line = "safeconsumer: interrupted\n"
        assert (result.exit_code, result.output) == (Status.INTERRUPTED, line)
    else:
        assert isinstance(result.exception, RuntimeError)


def test_full_disk_error_is_handled_by_the_program_and_not_by_the_command():
    """The program then exits with status 70, because 1 would mean a bad outcome."""

    def body():
        raise OSError(errno.ENOSPC, "No space left on device")

    assert isinstance(ended(body).exception, OSError)


def test_interrupt_while_the_event_loop_is_locked_is_not_hidden(monkeypatch):
    """kafka-python locks its loop one line before the ``try`` that unlocks it."""

    def interrupted(loop, _timeout=None):
        if not loop._poll_lock.acquire(blocking=False):
            message = "Concurrent access to net.poll!"
            raise RuntimeError(message)
        raise KeyboardInterrupt

    monkeypatch.setattr(NetworkSelector, "_poll_once", interrupted)
    with pytest.raises(KeyboardInterrupt):
        login.trouble({"bootstrap_servers": "127.0.0.1:1"}, 1.0)
