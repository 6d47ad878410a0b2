"""Finds problems that prevent a group from obeying holds, and gives advice on each."""

from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec

from kafka.errors import KafkaError

from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group import (
    described_topics,
    patterns,
    rights,
    scopes,
    topics,
    verdicts,
)
from safeconsumer.group.board import Board, Readable
from safeconsumer.group.facts import UNKNOWN
from safeconsumer.group.operator import Operator
from safeconsumer.group.report_wire import Report, kept_holds_text
from safeconsumer.group.troubles import error_text
from safeconsumer.group.verdicts import BAD, CONTROL, GOOD, NOTE, Finding
from safeconsumer.group.view import UNSEEN, Member, View
from safeconsumer.holds.explain import counted, utc

_INIT = "safeconsumer control init"
_ACLS = "set the ACLs of safeconsumer control acls"
# The seconds by which a member's clock may differ from the broker's.
_SKEW = 10.0


def findings(operator: Operator, group: str | None) -> Iterator[Finding]:
    """
    Check versions, topics, clocks and members.

    Args:
        operator: the connection.
        group: the group whose members are checked; None checks no members.

    Raises:
        KafkaError: a check failed; the last finding says that the rest was not checked.
    """
    try:
        yield from _findings(operator, group)
    except (ControlTopicError, KafkaError, OSError) as error:
        what = f"the rest could not be checked: {error_text(error)}"
        yield Finding("rest", BAD, what)
        raise


def _findings(operator: Operator, group: str | None) -> Iterator[Finding]:
    yield from _versions(operator)
    found = described_topics.describe(operator.admin, operator.settings.topics)
    yield from _topics(operator, found)
    # Without control topics members cannot report, so their reports are not missing.
    readable = Readable(ends=None, reports_are_read=True)
    if any(facts.partitions for facts in found):
        # The list of writers comes from kafka-acls.sh, and an operator must review it.
        yield Finding(
            "writers",
            NOTE,
            f"every principal that may write {operator.settings.holds_topic} can place "
            "and lift holds of any owner: list these principals",
            do=rights.listing(operator.settings),
        )
        is_fit = not topics.faults(found[0])
        readable = operator.read(is_strict=is_fit)
        if is_fit:
            yield from _holds(operator.board, group)
    yield from _of_group(operator, group, readable)


def _versions(operator: Operator) -> Iterator[Finding]:
    names = ("safeconsumer", "kafka-python")
    what = ", ".join(f"{name} {version(name)}" for name in names)
    yield Finding("versions", GOOD, what)
    broker = ".".join(map(str, operator.broker_version()))
    yield Finding(
        "cluster", GOOD, f"the cluster speaks the protocols of Kafka {broker}"
    )
    if find_spec("re2") is not None:
        yield Finding("re2", GOOD, "google-re2 is installed: patterns can be checked")
    else:
        yield Finding(
            "re2",
            NOTE,
            "google-re2 is missing: a member without it obeys a pattern as @all",
            do="pip install 'safeconsumer[group]', on every member too",
        )


def _topics(operator: Operator, found: Sequence[topics.Facts]) -> Iterator[Finding]:
    named = ", ".join(facts.name for facts in found)
    if any(facts.partitions for facts in found):
        of_holds, *of_reports = found
        yield from _topic(of_holds)
        for facts in of_reports:
            yield from _status_topic(facts)
    elif any(facts.is_hidden for facts in found):
        what = f"no right to describe any control topic: {named}"
        yield Finding("control-topics", BAD, what, do=_ACLS)
    else:
        meant = scopes.suggestion(operator.settings.holds_topic, operator.topics())
        what = f"no control topic exists: {named}{meant}"
        yield Finding("control-topics", BAD, what, do=_INIT)


def _of_group(
    operator: Operator, group: str | None, readable: Readable
) -> Iterator[Finding]:
    if group is None:
        return
    view = operator.view(group, operator.group(group), readable)
    if not view.is_known:
        what = scopes.unknown_group(view, operator.groups())
        do = "" if view.ends is None else "look for a typing error"
        yield Finding("group", BAD, what, do=do)
    yield from member_findings(view)


def _topic(facts: topics.Facts) -> Iterator[Finding]:
    faults = topics.faults(facts)
    notes = () if faults else (*topics.advice(facts), *topics.forgotten(facts))
    for what in notes:
        yield Finding("topic-settings", NOTE, what, do=_advice(facts))
    wrong = faults or topics.shortcomings(facts)
    if wrong or not notes:
        yield from _settings(facts, wrong)


def _status_topic(facts: topics.Facts) -> Iterator[Finding]:
    faults = topics.status_faults(facts)
    if not faults and facts.settings is None:
        yield Finding(
            "topic-settings",
            NOTE,
            topics.unknown_settings(facts),
            do="run doctor as a principal with that right; only doctor needs it",
        )
    else:
        yield from _settings(facts, faults)


def _advice(facts: topics.Facts) -> str:
    # A missing topic has to be created. To describe a hidden topic, this principal
    # needs a permission.
    is_seen = not facts.partitions or facts.settings is not None
    return _INIT if is_seen and not facts.is_hidden else _ACLS


def _settings(facts: topics.Facts, faults: Collection[str]) -> Iterator[Finding]:
    # The fault "several partitions" contains its own advice, because init cannot remove
    # partitions.
    do = "" if facts.partitions and facts.partitions != 1 else _advice(facts)
    for fault in faults:
        yield Finding("topic-settings", BAD, fault, do="" if do in fault else do)
    if not faults:
        yield Finding("topic-settings", GOOD, f"{facts.name}: settings are right")


def _holds(board: Board, group: str | None) -> Iterator[Finding]:
    times, holds = board.times, board.holds(group)
    yield Finding("holds", GOOD, f"on the topic: {counted(len(holds), 'hold')}")
    for one in holds:
        label = f"{one.key.scope} {one.owner} of {one.key.group}"
        read = patterns.read_key(one.key)
        if read.trouble is not None:
            yield Finding(
                "hold-pattern",
                BAD,
                f"{label} is not understood by this installation ({read.trouble})",
                do="members of this version obey it as @all: upgrade, or resume it",
            )
        if one.expires_at is not None and one.is_over(times.here):
            yield _over(label, one.expires_at, is_proven=one.is_over(times.proven))


def _over(label: str, end: float, *, is_proven: bool) -> Finding:
    if is_proven:
        return Finding(
            "hold-end",
            NOTE,
            f"{label} expired at {utc(end)}",
            do="no action is needed; safeconsumer resume removes it",
        )
    return Finding(
        "hold-end",
        NOTE,
        f"{label} may have ended at {utc(end)}: that time is past by this machine's "
        "clock, and no record proves it",
        do="members obey it until a record proves it; safeconsumer resume lifts it",
    )


# ---------------------------------------------------------------- members

# Seconds within which a member lifts an expired hold and reports the change.
_AT_ONCE = 1.0


def member_findings(view: View) -> Iterator[Finding]:
    """Yield a finding for each member on whether it obeys the holds."""
    for why in view.unread:
        do = "" if _INIT in why else "check the rights and ACLs"
        yield Finding("unread", BAD, f"unknown: {why}", do=do)
    yield from _membership(view)
    for one in view.all_members:
        if one.verdict != verdicts.REPORTS_UNREAD:
            yield from _member(view, one)
    for stream in view.lost_streams:
        yield Finding(
            "stream",
            NOTE,
            verdicts.lost_stream_text(stream),
            do="check what is held before its query is started again"
            if stream.state == "stopped"
            else "check that its driver runs; a batch that it planned may still read",
        )


def _membership(view: View) -> Iterator[Finding]:
    if view.unsettled:
        rank, do = NOTE, "run doctor again"
        if view.facts.state in {UNKNOWN, "Empty", "Dead"}:
            rank, do = (
                BAD,
                (
                    "plain clients obey no hold, whatever their protocol: find the "
                    f"programs that use this group, and give them {CONTROL}"
                ),
            )
        what = f"{view.group}: {view.unsettled}; which members obey is not known"
        yield Finding("membership", rank, what, do=do)
    elif view.is_known and not view.all_members:
        what = f"{view.group} has no members; {UNSEEN}, and obeys no hold"
        yield Finding("membership", NOTE, what)


def _member(view: View, one: Member) -> Iterator[Finding]:
    label = f"member {one.name} on {one.host}"
    if one.has_gone:
        what = f"{label} reported lately, and is not in the group any more"
        yield Finding("member", NOTE, what)
    elif not one.obeys:
        rank = BAD if one.verdict.do else NOTE
        do = one.verdict.do or "run doctor again"
        yield Finding("member", rank, f"{label} {one.verdict.sentence}", do=do)
    elif one.report is not None:
        yield _obedience(view, one.report, label)
    if one.report is not None and not one.has_gone:
        yield from _clock_and_records(one.report, label)


def _obedience(view: View, report: Report, label: str) -> Finding:
    obeyed, held = counted(report.holds, "hold"), len(view.holds)
    # The report may count holds that have expired since it was made.
    at = report.at_ms / 1000 + report.clock_offset - _AT_ONCE
    expired = sum(one.in_force(at, view.skew) for one in view.recently_expired)
    if report.kept or report.holds > held + expired:
        named = f" ({kept_holds_text(report.kept)})" if report.kept else ""
        return Finding(
            "member",
            BAD,
            f"{label} obeys {obeyed}, and the topics have {held}: the topics were "
            f"lost or recreated{named}",
            do="place them again with pause, or lift them with resume, by their "
            "scope and owner",
        )
    if report.holds < len(view.lasting):
        return Finding(
            "member",
            BAD,
            f"{label} has read every record and obeys {obeyed}, and the topics have "
            f"{len(view.lasting)}",
            do="read its log and restart it; holds() shows which holds are missing",
        )
    return Finding("member", GOOD, f"{label} obeys all holds")


def _clock_and_records(report: Report, label: str) -> Iterator[Finding]:
    if report.skipped:
        yield Finding(
            "member-records",
            NOTE,
            f"{label} skipped {counted(report.skipped, 'unreadable record')}",
            do="find out who writes to the holds topic besides safeconsumer",
        )
    apart = abs(report.clock_offset)
    if apart > _SKEW:
        yield Finding(
            "member-clock",
            NOTE,
            f"{label}: its clock and the broker's differ by {apart:.0f} s",
            do="set its clock; clock_skew= must be larger than the difference",
        )
