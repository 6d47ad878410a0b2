"""Implements ``safeconsumer audit``: checks guarantees against journals."""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from attrs import evolve, field, frozen

from safeconsumer.audit.around import around
from safeconsumer.audit.findings import Address
from safeconsumer.audit.loading import Journals, load
from safeconsumer.audit.perfetto import Collector
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.audit.report import UNKNOWN, VIOLATED, Row, status_of
from safeconsumer.audit.results import CHECKS, Settings
from safeconsumer.audit.stream import Source
from safeconsumer.cli.against import topic_journal
from safeconsumer.cli.checkpoints import Streams, stream_options
from safeconsumer.cli.cluster import uncompacted
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.control_topics import read_control
from safeconsumer.cli.errors import CommandError, complain, explained
from safeconsumer.cli.journals import check_there, settings_options, topic_or_partition
from safeconsumer.cli.statuses import EPILOG
from safeconsumer.holds.explain import counted, first_of, printable
from safeconsumer.holds.scope import partition_text

if TYPE_CHECKING:
    from safeconsumer.spark.auditing import SparkJournals

    Given: TypeAlias = Journals | SparkJournals

_MANY = 10  # the maximum number of partitions printed for a check

Shown = Mapping[Row, Sequence[str]]


@frozen
class _Verdict:
    """
    The verdict that is printed and written to reports.

    Attributes:
        rows: the rows.
        troubles: the reasons why journals or topics could not be read.
        journals: the number of journals.
        shown: the entries around violations, by row.
        streams: a line about each stream.
    """

    rows: tuple[Row, ...]
    troubles: tuple[str, ...]
    journals: int
    shown: Shown = field(factory=dict)
    streams: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return status_of(self.rows, is_complete=not self.troubles)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for a missing verdict, including that no journal names a partition."""
        if self.rows or self.troubles:
            return self.troubles
        return ("no journal names a partition",)

    def without(self, left_out: Container[str]) -> "_Verdict":
        """Return the verdict without some checks."""
        rows = tuple(row for row in self.rows if row.check not in left_out)
        return evolve(self, rows=rows)


@click.command(epilog=EPILOG)
@click.argument("journals", nargs=-1, metavar="JOURNAL...")
@settings_options
@click.option(
    "--without",
    "left_out",
    multiple=True,
    type=click.Choice(CHECKS),
    metavar="CHECK",
    help="Leave out a check, by its name in the output, for example a check that "
    "cannot be judged.",
)
@click.option("--report", type=click.Path(path_type=Path), help="Rows as JSON lines.")
@click.option(
    "--perfetto",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The events and the violations, as a trace that ui.perfetto.dev opens.",
)
@click.option(
    "--against-topic",
    is_flag=True,
    help="Read the topics too: finds records that a client lost without noticing.",
)
@click.option(
    "--control",
    "is_control",
    is_flag=True,
    help="Read the control topics too: they show when the groups were held, for G2 and "
    "W10.",
)
@click.option(
    "--partition",
    metavar="TOPIC[:N]",
    help="Only this partition, or all of this topic, with the entries around each "
    "violation.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Judge on Spark, for example local[*]; journals may lie wherever it reads: "
    "s3a://..., hdfs://...",
)
@stream_options
@connection_options
@click.pass_context
def audit(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    journals: tuple[str, ...],
    settings: Settings,
    left_out: tuple[str, ...],
    report: Path | None,
    perfetto: Path | None,
    against_topic: bool,
    is_control: bool,
    streams: Streams,
    connect: Connect,
    partition: str | None,
    master: str | None,
) -> None:
    """
    Check consumers by their delivery journals, and streams by their checkpoints.

    JOURNAL is a file, or a folder with *.journal files; give the journals of all
    members and producers together. Each consumer group is judged separately. Status 1:
    there are violations, and each is printed with its evidence. Status 2: there is no
    verdict, because a journal is missing, broken or from a newer version, no journal
    names a partition, or a check could not be judged; the reason is printed. The status
    is also 2 if a report could not be written. The rows of a report contain
    is_complete, which is true if every journal could be read.
    """
    with explained(context):
        if not journals and not streams.folders:
            message = "name a JOURNAL, or the --checkpoint of a stream"
            raise CommandError(message)
        only = None if partition is None else topic_or_partition(partition)
        if is_control:
            settings = _with_control(settings, connect)
        if perfetto is not None and master is not None:
            message = "--perfetto reads the journals here: leave out --master"
            raise CommandError(message)
        of_streams, lines = streams.judged(settings, master)
        may_ask = against_topic or is_control or connect.is_typed
        with _opened(journals, master if journals else None) as given:
            tps = sorted(given.partitions()) if against_topic else ()
            more, unread = _read_topics(connect.base, tps)
            asked = connect if may_ask else None
            rows, troubles = _judged(given, settings, more, asked)
            verdict = _Verdict(
                (*rows, *of_streams), (*troubles, *unread), len(given), streams=lines
            )
            reasons = verdict.reasons
            files = {}
            if perfetto is not None:
                files[perfetto] = _trace(journals, settings, more, only)
            verdict = verdict.without(left_out)
            if only is not None:
                verdict = _about(verdict, only, given)
    for reason in reasons:
        complain(reason)
    _print(verdict, left_out, is_against=against_topic)
    if report is not None:
        files[report] = _rows(verdict.rows, is_complete=not verdict.troubles)
    context.exit(_write_files(verdict, files))


def _about(verdict: _Verdict, only: tuple[str, int | None], given: "Given") -> _Verdict:
    _complain_of_unknown(verdict.rows, only)
    rows = tuple(row for row in verdict.rows if _is_of(row, only))
    return evolve(verdict, rows=rows, shown=_around(rows, given))


def _print(verdict: _Verdict, left_out: Sequence[str], *, is_against: bool) -> None:
    lines = _report_lines(verdict)
    if not is_against:
        lines[-1:] = [*_unrecorded(verdict.rows), lines[-1]]
    if left_out:
        lines[-1] += f", without {', '.join(sorted(set(left_out)))}"
    click.echo("\n".join(lines))


def _trace(
    journals: Iterable[str],
    settings: Settings,
    more: Sequence[Source],
    only: tuple[str, int | None] | None,
) -> str:
    collector = Collector(settings)
    load(map(Path, journals)).read_by(collector.read, more)
    return collector.trace(lambda case: only is None or _is_of(case, only))


def _write_files(verdict: _Verdict, files: Mapping[Path, str]) -> int:
    # Returns the command's exit status. A write error is reported after the verdict,
    # and does not change a verdict of violations.
    status = verdict.status
    for path, text in files.items():
        try:
            path.write_text(text, "utf-8")
        except OSError as error:
            complain(f"{path} cannot be written: {error.strerror}")
            status = VIOLATED if verdict.status == VIOLATED else UNKNOWN
    return status


def _judged(
    given: "Given", settings: Settings, more: Sequence[Source], connect: Connect | None
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    # Topic settings matter only if an offset had no record, which is rare.
    rows, troubles = given.judged(settings, more)
    topics = {row.topic for row in rows if row.unrecorded}
    if connect is None or not topics:
        return rows, troubles
    plain = uncompacted(connect.base(), topics)
    if plain:
        rows, troubles = given.judged(evolve(settings, uncompacted=plain), more)
    return rows, troubles


def _unrecorded(rows: Iterable[Row]) -> Iterator[str]:
    found = [row for row in rows if row.unrecorded and not row.unjudged]
    if found:
        first, *others = found
        more = f" and {len(others):,} more" if others else ""
        offsets = counted(sum(row.unrecorded for row in found), "offset")
        yield printable(
            f"A2  {_case(first)}{more}  {offsets} had no record: compaction and "
            "transactions leave such offsets, and lost records look the same "
            "(--against-topic shows which)"
        )


def _with_control(settings: Settings, connect: Connect) -> Settings:
    if settings.control is not None:
        message = "give one of --control and --history"
        raise CommandError(message)
    control = read_control(connect.base(), connect.control().holds_topic)
    return evolve(settings, control=control)


@contextmanager
def _opened(journals: Sequence[str], master: str | None) -> Iterator["Given"]:
    if master is None:
        check_there(journals)
        yield load(map(Path, journals))
        return
    # Import these modules only with --master, because they load slowly and require an
    # extra.
    from safeconsumer.cli.spark_session import session  # noqa: PLC0415
    from safeconsumer.spark.auditing import SparkJournals  # noqa: PLC0415

    with (
        session(master) as spark,
        SparkJournals(spark, journals) as found,
    ):
        yield found


def _read_topics(
    base: Callable[[], dict[str, Any]], tps: Sequence[TopicPartition]
) -> tuple[Sequence[Source], Sequence[str]]:
    if not tps:
        return (), ()
    journal, troubles = topic_journal(base(), tps)
    return (journal,), troubles


def _rows(rows: Sequence[Row], *, is_complete: bool) -> str:
    # Each row shows whether all journals were read; if not, a row without violations is
    # not a clean verdict.
    lines = (json.dumps({**row.as_dict(), "is_complete": is_complete}) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _report_lines(verdict: _Verdict) -> list[str]:
    rows, lines = verdict.rows, list[str]()
    unjudged: dict[str, list[Row]] = {}
    violated: dict[str, list[int]] = {}
    for row in rows:
        counts = violated.setdefault(row.check, [])
        if row.violations:
            counts.append(row.violations)
        if row.violations and len(counts) <= _MANY:
            line = (
                f"{row.check}  {_case(row)}  {row.violations} x, first by "
                f"{row.member or 'the fleet'}: {row.evidence} (by {row.basis})"
            )
            lines += map(printable, (line, *verdict.shown.get(row, ())))
        if row.unjudged:
            unjudged.setdefault(row.unjudged, []).append(row)
    for check, counts in violated.items():
        if rest := counts[_MANY:]:
            parts = counted(len(rest), "more partition")
            lines.append(f"{check}  {sum(rest):,} x in {parts} (--report has them all)")
    for why, several in unjudged.items():
        checks = ", ".join(dict.fromkeys(row.check for row in several))
        first, *others = dict.fromkeys(map(_case, several))
        more = f" and {len(others):,} more" if others else ""
        line = f"{checks}  {first}{more}  could not be judged: {why}"
        lines.append(printable(line))
    # A partition that two groups read is judged and counted twice.
    partitions = len({(row.group, row.topic, row.partition) for row in rows})
    what = {VIOLATED: "violations", UNKNOWN: "could not tell"}.get(
        verdict.status, "clean"
    )
    of = [counted(len(verdict.streams), "stream")] if verdict.streams else []
    if verdict.journals or not of:
        of.insert(0, counted(verdict.journals, "journal"))
    of.append(counted(partitions, "partition"))
    return [*lines, *verdict.streams, f"{what}: {', '.join(of)}"]


def _case(row: Row) -> str:
    group = f" of {row.group}" if row.group else ""
    return f"{partition_text(row.topic, row.partition)}{group}"


def _complain_of_unknown(rows: Sequence[Row], only: tuple[str, int | None]) -> None:
    if any(_is_of(row, only) for row in rows):
        return
    topic, number = only
    known = sorted({(row.topic, row.partition) for row in rows})
    asked = f"the topic {topic}" if number is None else partition_text(topic, number)
    named = first_of([partition_text(*tp) for tp in known]) or "no partition"
    complain(f"no journal names {asked}; they name {named}")


def _is_of(row: Row | Address, only: tuple[str, int | None]) -> bool:
    topic, number = only
    return row.topic == topic and number in {None, row.partition}


def _around(rows: Sequence[Row], given: "Given") -> Shown:
    return {
        row: tuple(around(given.near, row.group, row.member, row.entry))
        for row in rows
        if row.violations and row.entry is not None
    }
