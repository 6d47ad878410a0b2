"""
How commands for operators end: one line on stderr, and a status a script can test.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import click
import kafka.errors as kafka_errors

from safeconsumer.cli.saying import printable
from safeconsumer.errors import (
    ClientPropertyError,
    ControlSettingError,
    ControlTopicError,
    ControlWriteError,
    DecoderSettingError,
    HoldSettingError,
    MissingExtraError,
    ScopeSyntaxError,
    SparkSettingError,
    SparkSetupError,
)


class Status(IntEnum):
    """
    Exit statuses of the commands that control groups.
    """

    DONE = 0
    NOT_SO = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    INTERRUPTED = 130


MEANINGS = {
    Status.DONE: "Done; what is printed is so.",
    Status.NOT_SO: "wait: not in time, or nothing is held. doctor: something is wrong.",
    Status.USAGE: "Wrong usage, a bad scope, an unknown group, a missing package.",
    Status.UNREACHABLE: "No broker answers, or not in time.",
    Status.REFUSED: "No permission, or a control topic that would lose holds.",
    Status.INTERRUPTED: "Interrupted.",
}

EPILOG = "\b\nExit status:\n" + "\n".join(
    f"  {status:>3}  {meaning}" for status, meaning in MEANINGS.items()
)

_USAGE = (
    ClientPropertyError,
    ControlSettingError,
    DecoderSettingError,
    HoldSettingError,
    MissingExtraError,
    ScopeSyntaxError,
    SparkSettingError,
    SparkSetupError,
)
_REFUSED = (
    kafka_errors.AuthorizationError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.TopicAuthorizationFailedError,
)


class CommandError(Exception):
    """
    A command cannot go on; the message is one line for people.
    """

    def __init__(self, message: str, status: Status = Status.USAGE) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def explained(context: click.Context) -> Iterator[None]:
    """
    Turn what goes wrong into one line and the documented status.
    """
    try:
        yield
    except CommandError as error:
        give_up(context, str(error), error.status)
    except _USAGE as error:
        give_up(context, str(error), Status.USAGE)
    except ControlTopicError as error:
        give_up(context, str(error), Status.REFUSED)
    except ControlWriteError as error:
        give_up(context, str(error), status_of(error.__cause__))
    except (kafka_errors.KafkaError, OSError) as error:
        give_up(context, said(error), status_of(error))
    except KeyboardInterrupt:
        give_up(context, "interrupted", Status.INTERRUPTED)


def give_up(context: click.Context, why: str, status: Status) -> None:
    """
    End the command.
    """
    line = printable(" ".join(why.split()))
    click.echo(f"safeconsumer: {line}", err=True)
    context.exit(status)


def status_of(error: BaseException | None) -> Status:
    """
    Return the status for an error of the cluster or of the way to it.
    """
    return Status.REFUSED if isinstance(error, _REFUSED) else Status.UNREACHABLE


def said(error: BaseException) -> str:
    """
    Say what went wrong at the cluster and what to do.
    """
    if isinstance(error, _REFUSED):
        return (
            f"the broker refuses: {error}; safeconsumer control init prints the ACLs "
            "that are needed"
        )
    said = str(error) or type(error).__name__
    # A broker that refuses a login closes the connection; kafka-python sees no more.
    return (
        f"no answer from the broker: {said[:200]}; check --bootstrap and, in --config, "
        "security.protocol and the password"
    )
