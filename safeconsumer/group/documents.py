"""Turns what is known of a group into plain JSON values, for ``-o json`` and the console."""

from typing import Any

from kafka import TopicPartition

from safeconsumer.group.facts import Standing
from safeconsumer.group.judging import Answer, Judge, Seat, has_applied
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import Report


def standing_document(one: Standing) -> dict[str, object]:
    """Return a hold as plain JSON values."""
    return {
        "group": one.key.group,
        "scope": one.key.scope,
        "source": one.source,
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
    }


def status_document(picture: Picture) -> dict[str, Any]:
    """Return the whole status of a group as plain JSON values."""
    judge = Judge(picture)
    return {
        "group": picture.group,
        "state": picture.facts.state,
        "members": picture.facts.member_count,
        "now": picture.now,
        "unread": list(picture.unread),
        "ends": None if picture.ends is None else dict(picture.ends),
        "holds": [standing_document(one) for one in picture.standing],
        "seats": [seat_document(one) for one in (*judge.members, *judge.others)],
        "reports": [
            {**report_document(one), "has_applied_all": has_applied(one, picture.ends)}
            for one in picture.reports
        ],
        "gone": [report_document(one) for one in picture.gone],
        "held": [_held_document(picture, judge, tp) for tp in picture.held],
    }


def seat_document(one: Seat) -> dict[str, object]:
    """Return a member, and whether it obeys, as plain JSON values."""
    report, facts = one.report, one.facts
    return {
        "client_id": one.name,
        "member_id": facts.member_id if facts else None,
        "host": facts.host if facts else report.host if report else "",
        "member": report.member if report else None,
        "is_in_group": facts is not None,
        "obeys": one.obeys,
        "why": one.why,
    }


def report_document(one: Report) -> dict[str, object]:
    """Return a member's report as plain JSON values."""
    return {
        "client_id": one.client_id,
        "kind": one.kind or "member",
        "member": one.member,
        "member_id": one.member_id,
        "generation": one.generation,
        "host": one.host,
        "state": one.state,
        "applied": dict(one.applied),
        "holds": one.holds,
        "skipped": one.skipped,
        "assigned": dict(one.assigned),
        "quiet": dict(one.quiet),
        "busy": dict(one.busy),
        "gated": one.gated,
        "is_partial": one.is_partial,
        "outages": list(one.outages),
        "kept": list(one.kept),
    }


def _held_document(
    picture: Picture, judge: Judge, tp: TopicPartition
) -> dict[str, object]:
    place = judge.place(tp)
    return {
        "partition": f"{tp.topic}:{tp.partition}",
        "answer": place.answer.value,
        "member": place.member,
        "why": place.why,
        "quiet_at": place.member if place.answer is Answer.QUIET else None,
        "lag": picture.lags.get(tp),
    }
