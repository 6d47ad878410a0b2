"""Reads Spark stream checkpoints for an audit, from local folders or with Spark."""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click
from attrs import frozen

from safeconsumer.audit.checkpoint import Checkpoint, checkpoint_of, judged
from safeconsumer.audit.report import Row
from safeconsumer.audit.results import Settings
from safeconsumer.cli.errors import CommandError
from safeconsumer.cli.options import options
from safeconsumer.cli.spark_session import session
from safeconsumer.errors.base import CheckpointError
from safeconsumer.holds.explain import counted, first_of, printable
from safeconsumer.spark.platforms import is_of_spark, reason

_MOST_NAMED = 10  # the number of groups that a message names
_NOT_THERE = "PATH_NOT_FOUND"  # Spark's error class for a missing path
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)  # C:/ is not a scheme


@frozen(kw_only=True)
class Streams:
    """
    The streams that an audit judges in addition to members.

    Attributes:
        folders: the streams' checkpoint folders.
        group: the group whose holds the streams obey.
    """

    folders: tuple[str, ...]
    group: str | None

    def judged(
        self, settings: Settings, master: str | None
    ) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        """
        Return a row for each partition of each stream, and a line about each stream.

        Raises:
            CheckpointError: a checkpoint cannot be read.
            CommandError: an option is missing, a folder does not exist, or the holds
                topic has no records about the group.
        """
        if self.group is None or not self.folders:
            if self.group is None and not self.folders:
                return (), ()
            message = (
                "--checkpoint and --group go together: a checkpoint does not name the "
                "group whose holds its stream obeys (holds.group)"
            )
            raise CommandError(message)
        if settings.control is None:
            message = (
                "--checkpoint needs --control, or --history FILE: they show when "
                f"{self.group} was held"
            )
            raise CommandError(message)
        _check_named(self.group, settings.control.groups)
        rows: list[Row] = []
        lines: list[str] = []
        for folder in self.folders:
            found = checkpoint_of(folder, dict(_files(folder, master)))
            rows += judged(found, settings.control, self.group, settings.clock_skew)
            lines.append(printable(self._line(found, settings)))
        return tuple(rows), tuple(lines)

    def _line(self, found: Checkpoint, settings: Settings) -> str:
        first, last = found.batches[0], found.batches[-1]
        spans = settings.control.spans if settings.control is not None else ()
        holds = sum(
            one.group == self.group and one.start < last.at and first.at < one.end
            for one in spans
        )
        return (
            f"S1  {found.name}: batches {first.number} to {last.number}, "
            f"{counted(holds, 'hold')} of {self.group} in that time"
        )


stream_options = options(
    "streams",
    lambda checkpoint, group: Streams(folders=checkpoint, group=group),
    click.option(
        "--checkpoint",
        multiple=True,
        metavar="DIR",
        help="Judge a Spark stream, too (S1), by its checkpoint and the control topics. "
        "With --master it may lie wherever Spark reads.",
    ),
    click.option("--group", help="The group whose holds the streams obey."),
)
"""Gives a command the streams that it judges, as the argument ``streams``."""


def _check_named(group: str, known: AbstractSet[str]) -> None:
    # A misspelt group has no holds, so its streams would pass every check.
    if group not in known:
        names = first_of(sorted(known), _MOST_NAMED) or "no group"
        message = (
            f"the holds topic has no record of the group {group!r}; it has records of "
            f"{names}: give as --group the stream's option holds.group"
        )
        raise CommandError(message)


def _files(folder: str, master: str | None) -> Iterator[tuple[str, str]]:
    # Yields the path and text of each file that may belong to a checkpoint.
    scheme = _SCHEME.match(folder)
    if scheme is None:
        yield from _read_local(Path(folder))
    elif scheme[1].lower() == "file":
        yield from _read_local(Path(url2pathname(urlsplit(folder).path)))
    elif master is None:
        message = (
            f"Spark reads {folder}: give --master, for example --master 'local[*]'"
        )
        raise CommandError(message)
    else:
        yield from _read_by_spark(folder, master)


def _read_local(folder: Path) -> Iterator[tuple[str, str]]:
    if not folder.is_dir():
        message = f"no such folder: {folder}"
        raise CommandError(message)
    if not (folder / "offsets").is_dir():
        message = (
            f"{folder} is no checkpoint of a Spark stream: it has no folder offsets"
        )
        raise CommandError(message)
    patterns = ("offsets/[0-9]*", "sources/*/0", "sources/*/skips/[0-9]*")
    for path in chain.from_iterable(map(folder.glob, patterns)):
        try:
            yield path.relative_to(folder).as_posix(), path.read_text("utf-8")
        except FileNotFoundError:
            continue  # the stream is running and deletes old batches
        except (OSError, UnicodeDecodeError) as error:
            message = f"{path} cannot be read: {error}"
            raise CheckpointError(message) from error


def _read_by_spark(folder: str, master: str) -> Iterator[tuple[str, str]]:
    with session(master) as spark:
        reader = spark.read.option("recursiveFileLookup", "true")
        for part in ("offsets", "sources"):
            where = f"{folder.rstrip('/')}/{part}"
            try:
                text = reader.text(where, wholetext=True, pathGlobFilter="[0-9]*")
                yield from text.selectExpr("input_file_name()", "value").collect()
            except Exception as error:
                if not is_of_spark(error):
                    raise
                if part == "sources" and _NOT_THERE in str(error):
                    continue  # the pure Python source does not write such files
                message = f"{where} cannot be read: {reason(error)}"
                raise CheckpointError(message) from error
