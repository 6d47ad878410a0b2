"""Turns a view of a group into plain JSON values, for ``-o json`` and the console."""

from typing import Any

from attrs import asdict

from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.movements import movements
from safeconsumer.group.report_wire import Report
from safeconsumer.group.verdicts import Verdict
from safeconsumer.group.view import Member, Row, View
from safeconsumer.group.wire import Reset
from safeconsumer.holds.scope import partition_text


def hold_document(one: HoldRecord) -> dict[str, object]:
    """Return a hold as plain JSON values."""
    return {
        "group": one.key.group,
        "scope": one.key.scope,
        "owner": one.key.owner,
        "is_held": one.hold is not None,
        "id": one.hold.hold_id if one.hold else None,
        "reason": one.hold.reason if one.hold else None,
        "host": one.hold.host if one.hold else None,
        "principal": one.hold.principal if one.hold else None,
        "at": one.at,
        "since": one.since,
        "expires_at": one.expires_at,
        "offset": one.offset,
        "reset": _reset_document(one.hold.reset if one.hold else None),
    }


def _reset_document(reset: Reset | None) -> dict[str, object] | None:
    if reset is None:
        return None
    to = {
        partition_text(topic, partition): offset
        for topic, partition, offset in reset.to
    }
    return {"to": to, "asked": reset.asked}


def verdict_document(one: Verdict) -> dict[str, str]:
    """Return a verdict as plain JSON values."""
    return {"level": one.level, "words": one.words, "sentence": one.sentence}


def group_document(view: View) -> dict[str, Any]:
    """
    Return a group's entry in a list of groups as plain JSON values.

    ``hold_count``, ``held`` and ``quiet`` are None if the holds topic could not be
    read. ``held`` and ``quiet`` are also None if the group has holds but its partitions
    are unknown, because 0 would mean that no partition is held or quiet. ``flowing`` is
    None if the holds topic could not be read and no hold is known.
    """
    is_read = view.ends is not None
    is_covered = is_read and not (view.holds and view.has_unknown_rows)
    return {
        "group": view.group,
        **verdict_document(view.verdict),
        "state": view.facts.state,
        "members": view.facts.member_count,
        "reporting": view.reporting,
        "hold_count": len(view.holds) if is_read else None,
        "held": len(view.held) if is_covered else None,
        "quiet": view.quiet if is_covered else None,
        "flowing": list(view.flowing) if view.holds or is_read else None,
        "next_expiry": view.next_expiry,
        "lag": view.lag,
        "whole_lag": view.whole_lag,
    }


def status_document(view: View) -> dict[str, Any]:
    """
    Return the whole status of a group as plain JSON values.

    ``holds`` and ``by_partition`` are None if no hold is known and the holds topic
    could not be read; holds that were read earlier are still shown. ``by_partition`` is
    also None if the group has holds but its partitions are unknown.
    """
    has_holds = bool(view.holds) or view.ends is not None
    is_covered = has_holds and not (view.holds and view.has_unknown_rows)
    holds, held = map(hold_document, view.holds), map(_partition_document, view.held)
    return {
        **group_document(view),
        "now": view.times.now,
        "unread": list(view.unread),
        "ends": None if view.ends is None else dict(view.ends),
        "holds": list(holds) if has_holds else None,
        "by_member": [_member_document(one) for one in view.members],
        "by_partition": list(held) if is_covered else None,
        "gone": list(map(_report_document, view.lost_streams)),
        "resets": [one.document() for one in movements(view)],
    }


def _member_document(one: Member) -> dict[str, object]:
    return {
        "client_id": one.name,
        "member_id": one.id if one.is_listed else None,
        "host": one.host,
        "is_in_group": one.is_listed,
        **verdict_document(one.verdict),
        "report": None if one.report is None else _report_document(one.report),
    }


def _report_document(one: Report) -> dict[str, object]:
    found = asdict(one)
    return {**found, "hold_count": found.pop("holds")}


def _partition_document(one: Row) -> dict[str, object]:
    return {
        "partition": one.name,
        **verdict_document(one.verdict),
        "owner": one.owner,
        "lag": one.lag,
    }
