"""Ends failed commands with one line on stderr and a status that scripts can test."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import kafka.errors as kafka_errors

from safeconsumer.cli.statuses import Status
from safeconsumer.errors.base import (
    ControlTopicError,
    ControlWriteError,
    SafeConsumerError,
)
from safeconsumer.group.troubles import Kind, error_text, kind_of
from safeconsumer.holds.explain import printable

# The key in a command's context for the error from the first connection attempt. Later
# errors are only timeouts.
FIRST_TROUBLE = "safeconsumer.first_trouble"


class CommandError(Exception):
    """The command cannot continue; the message is one line for people."""

    def __init__(self, message: str, status: Status = Status.USAGE) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def explained(context: click.Context) -> Iterator[None]:
    """Turn errors into one line on stderr and the documented status."""
    try:
        yield
    except click.exceptions.Exit:
        # Exit is a RuntimeError, and may be raised while another error is being
        # handled.
        raise
    except (Exception, KeyboardInterrupt) as raised:
        error = _cause_of(raised, context.meta.get(FIRST_TROUBLE))
        found = (of(error) for kind, of in _TABLE if isinstance(error, kind))
        status = next(found, None)
        if status is None:
            raise
        give_up(context, _line(error), status)


def _cause_of(error: BaseException, first: BaseException | None) -> BaseException:
    if first is not None and isinstance(error, kafka_errors.KafkaTimeoutError):
        return first
    # If kafka-python's event loop is interrupted between two steps of a task, it
    # notices that the task is unfinished, and raises an error about that instead of the
    # KeyboardInterrupt.
    one: BaseException | None = error if isinstance(error, RuntimeError) else None
    while one is not None and not isinstance(one, KeyboardInterrupt):
        one = one.__context__
    return error if one is None else KeyboardInterrupt()


def _line(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):  # its text may name written holds
        return str(error) or "interrupted"
    is_ours = isinstance(error, CommandError | SafeConsumerError)
    return (str(error) or type(error).__name__) if is_ours else error_text(error)


def _cluster_status(error: BaseException) -> Status | None:
    # The result is None if the output has lost its reader (kafka-python also has a
    # BrokenPipeError), or if the operating system refuses a call. explained() then
    # lets the error pass.
    if isinstance(error, BrokenPipeError) or kind_of(error) is Kind.SYSTEM:
        return None
    return status_of(error)


# The first class that matches decides; any other error is unexpected.
_TABLE: Sequence[tuple[type[BaseException], Callable[[Any], Status | None]]] = (
    (CommandError, lambda error: error.status),
    (ControlTopicError, lambda _: Status.REFUSED),
    (ControlWriteError, lambda error: status_of(error.__cause__)),
    (SafeConsumerError, lambda _: Status.USAGE),
    (kafka_errors.KafkaError, _cluster_status),
    (OSError, _cluster_status),
    (KeyboardInterrupt, lambda _: Status.INTERRUPTED),
)


def give_up(context: click.Context, why: str, status: Status) -> None:
    """Print the reason on stderr, and end the command with a status."""
    complain(" ".join(why.split()))
    context.exit(status)


def complain(text: str) -> None:
    """Print a line on stderr, after the program's name."""
    click.echo(f"safeconsumer: {printable(text)}", err=True)


def status_of(error: BaseException | None) -> Status:
    """Return the status for an error of the cluster or of the connection to it."""
    return _STATUSES[kind_of(error)]


_STATUSES = {
    Kind.AWAY: Status.UNREACHABLE,
    Kind.REFUSED: Status.REFUSED,
    Kind.MISSING: Status.FAILED,
    Kind.SETTING: Status.USAGE,
    Kind.SYSTEM: Status.FAILED,
}
