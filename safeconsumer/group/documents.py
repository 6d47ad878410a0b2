"""
What an operator is told, as plain JSON values: for ``--json`` and for the console.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka import TopicPartition

from safeconsumer.group.facts import GroupFacts, Standing
from safeconsumer.group.judging import has_applied, quiet_at
from safeconsumer.group.report_wire import Report


def standing_document(one: Standing) -> dict[str, object]:
    """
    Return a hold as plain JSON values.
    """
    return {
        "group": one.key.group,
        "scope": one.key.scope,
        "source": one.source,
        "owner": one.key.owner,
        "is_held": one.hold is not None,
        "id": one.hold.hold_id if one.hold else None,
        "reason": one.hold.reason if one.hold else None,
        "at": one.at,
        "expires_at": one.expires_at,
        "offset": one.offset,
    }


def status_document(  # noqa: PLR0913, PLR0917 - all that a script asks for
    group: str,
    facts: GroupFacts,
    standing: Sequence[Standing],
    reports: Sequence[Report],
    ends: Mapping[str, int],
    lags: Mapping[TopicPartition, int],
) -> dict[str, Any]:
    """
    Return the whole status of a group as plain JSON values.
    """
    where = quiet_at(reports)
    return {
        "group": group,
        "state": facts.state,
        "members": len(facts.members),
        "ends": dict(ends),
        "holds": [standing_document(one) for one in standing],
        "reports": [
            {
                "client_id": one.client_id,
                "member": one.member,
                "host": one.host,
                "state": one.state,
                "applied": dict(one.applied),
                "has_applied_all": has_applied(one, ends),
                "holds": one.holds,
                "skipped": one.skipped,
                "assigned": dict(one.assigned),
                "quiet": dict(one.quiet),
                "gated": one.gated,
                "is_partial": one.is_partial,
                "outages": list(one.outages),
            }
            for one in reports
        ],
        "held": [
            {
                "partition": f"{tp.topic}:{tp.partition}",
                "quiet_at": where.get(tp),
                "lag": lags.get(tp),
            }
            for tp in facts.partitions
            if any(one.covers(tp) for one in standing)
        ],
    }
