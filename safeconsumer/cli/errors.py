"""
How commands end: one line on stderr, and a status that a script can test.
"""

import textwrap
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
    Exit statuses: one meaning each, whichever command it is.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    UNCOMMITTED = 5
    GIVEN_UP = 6
    MISSING = 7
    LEFT = 8
    NOT_SHOWN = 9
    NOT_PLAYED = 10
    INTERRUPTED = 130


MEANINGS = {
    Status.DONE: "Done; what is printed is so.",
    Status.FAILED: "The outcome is bad: a record failed, a check did not pass, a wait "
    "was in vain.",
    Status.USAGE: "Wrong usage, or what was given is no good: a setting, a handler, a "
    "journal, a scope, an unknown group; or a package is missing.",
    Status.UNREACHABLE: "No broker answers in time, or none lets this user in.",
    Status.REFUSED: "No permission, or a control topic that would lose holds.",
    Status.UNCOMMITTED: "Stopped, but the last commit did not go through.",
    Status.GIVEN_UP: "Stopped, but running handlers were given up.",
    Status.MISSING: "A topic that is named does not exist.",
    Status.LEFT: "Replayed, but for letters that stay where they are; each is named.",
    Status.NOT_SHOWN: "KafkaConsumer did not fail where it is known to.",
    Status.NOT_PLAYED: "A scenario could not be played to its end.",
    Status.INTERRUPTED: "Interrupted.",
}


def epilog(*statuses: Status) -> str:
    """
    Return what a command's help says of the statuses that it ends with.
    """
    return "\b\nExit status:\n" + "\n".join(
        f"  {status:>3}  {_wrapped(MEANINGS[status])}" for status in statuses
    )


def _wrapped(meaning: str) -> str:
    # click leaves the block as it is, also where it is too wide for a terminal.
    return "\n       ".join(textwrap.wrap(meaning, 72))


EPILOG = epilog(
    Status.DONE,
    Status.FAILED,
    Status.USAGE,
    Status.UNREACHABLE,
    Status.REFUSED,
    Status.INTERRUPTED,
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


def is_refused(error: BaseException | None) -> bool:
    """
    Tell whether a broker refuses what was asked, or a topic is unfit for it.
    """
    return isinstance(error, (*_REFUSED, ControlTopicError))


def status_of(error: BaseException | None) -> Status:
    """
    Return the status for an error of the cluster or of the way to it.
    """
    return Status.REFUSED if is_refused(error) else Status.UNREACHABLE


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
