"""Defines options for commands that judge journals, and checks journal names."""

import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import click

from safeconsumer.audit.control import Control, history_in
from safeconsumer.audit.reading import partition_of
from safeconsumer.audit.results import Settings
from safeconsumer.cli.errors import CommandError
from safeconsumer.cli.options import options
from safeconsumer.errors.base import JournalError
from safeconsumer.group.durations import parse_duration


def check_there(journals: Iterable[str]) -> None:
    """
    Check that the given journal files and folders exist.

    Raises:
        CommandError: a file or folder does not exist, or cannot be read.
    """
    for name in journals:
        try:
            is_there = bool(name) and Path(name).exists()  # Path("") is "."
        except OSError as error:
            message = f"{name[:300]} cannot be read: {error.strerror}"
            raise CommandError(message) from error
        if not is_there:
            message = f"no such file or folder: {name or repr(name)}"
            raise CommandError(message)


def topic_or_partition(text: str) -> tuple[str, int | None]:
    """
    Return the topic and partition number in ``--partition``; None for all partitions.

    Raises:
        CommandError: the topic or number is malformed.
    """
    try:
        return partition_of(text) if ":" in text else (text, None)
    except ValueError as error:
        message = f"--partition: {text!r} is not TOPIC[:N], such as orders:3: {error}"
        raise CommandError(message) from error


def _control(
    _context: click.Context, _parameter: click.Parameter, value: Path | None
) -> Control | None:
    if value is None:
        return None
    try:
        return history_in(value)
    except JournalError as error:
        raise click.BadParameter(str(error)) from error


def _allowance(
    _context: click.Context, _parameter: click.Parameter, value: str
) -> float:
    try:
        return parse_duration(value)
    except ValueError:
        with suppress(ValueError):
            if 0 <= (seconds := float(value)) < math.inf:
                return seconds
    message = (
        f"{value} is neither a number of seconds, 0 or more, nor a duration: 5s, 1m"
    )
    raise click.BadParameter(message)


settings_options = options(
    "settings",
    lambda drained, clock_skew, patience, history: Settings(
        patience=patience, clock_skew=clock_skew, is_drained=drained, control=history
    ),
    click.option(
        "--drained",
        is_flag=True,
        help="Every written record should have been delivered.",
    ),
    click.option(
        "--clock-skew",
        default="0",
        callback=_allowance,
        metavar="SECONDS|DURATION",
        help="The largest difference between the clocks of any two hosts, brokers included.",
    ),
    click.option(
        "--patience",
        default="5s",
        show_default=True,
        callback=_allowance,
        metavar="SECONDS|DURATION",
        help="How long a hold of the group may take to reach members that own the "
        "partition already.",
    ),
    click.option(
        "--history",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=_control,
        metavar="FILE",
        help="The output of `safeconsumer history -o json`: when the groups were held.",
    ),
)
"""Gives a command the judge's settings, as the argument ``settings``."""
