"""Finds what would keep a group hold from working, and says what to do."""

from collections.abc import Collection, Iterator
from importlib.metadata import version
from importlib.util import find_spec

from safeconsumer.group import patterns, topics
from safeconsumer.group.acl_findings import acl_findings
from safeconsumer.group.judging import BAD, GOOD, NOTE, Finding, member_findings
from safeconsumer.group.operator import Operator
from safeconsumer.holds.explain import counted, utc

_INIT = "safeconsumer control init"


def findings(
    operator: Operator, group: str | None, operators: Collection[str] = ()
) -> Iterator[Finding]:
    """
    Check versions, topics, ACLs, clocks and members.

    Args:
        operator: the connection.
        group: the group whose members are checked; None: no members are checked.
        operators: principals who should have operators' rights, and nobody else; empty
            if they are not known.
    """
    names = ("safeconsumer", "kafka-python")
    said = ", ".join(f"{name} {version(name)}" for name in names)
    yield Finding(rank=GOOD, what=said)
    broker = ".".join(map(str, operator.broker_version()))
    yield Finding(rank=GOOD, what=f"the cluster answers, protocols of Kafka {broker}")
    yield _re2()
    found = topics.ask(operator.admin, operator.settings.all_topics)
    if not any(facts.partitions for facts in found):
        named = ", ".join(facts.name for facts in found)
        what = f"no control topic is there, or may be described by you: {named}"
        yield Finding(rank=BAD, what=what, do=_INIT)
        return
    found = found[: len(operator.settings.topics)]
    for facts in found:
        yield from _topic(facts)
    fit = not any(topics.faults(facts) for facts in found)
    yield from _status_topic(operator)
    yield from acl_findings(operator, operators)
    if fit:
        yield from _holds(operator, group)
    if group is not None:
        yield from member_findings(operator.look(group))


def _re2() -> Finding:
    if find_spec("re2") is not None:
        return Finding(rank=GOOD, what="google-re2 is here: patterns can be checked")
    return Finding(
        rank=NOTE,
        what="google-re2 is missing: a member without it obeys a pattern as @all",
        do="pip install 'safeconsumer[group]', on every member too",
    )


def _status_topic(operator: Operator) -> Iterator[Finding]:
    name = operator.settings.status_topic
    if name is None:
        return
    (facts,) = topics.ask(operator.admin, (name,))
    faults = topics.status_faults(facts)
    for fault in faults:
        yield Finding(rank=BAD, what=fault, do=_mend(facts))
    if not faults:
        yield Finding(rank=GOOD, what=f"{name}: settings are right")


def _mend(facts: topics.Facts) -> str:
    # What has several partitions says itself what to do: init does not take them away.
    return "" if facts.partitions and facts.partitions != 1 else _INIT


def _topic(facts: topics.Facts) -> Iterator[Finding]:
    faults = topics.faults(facts)
    for fault in faults:
        yield Finding(rank=BAD, what=fault, do=_mend(facts))
    if faults:
        return
    notes = (*topics.advice(facts), *topics.forgotten(facts))
    problems = topics.shortcomings(facts)
    for said in notes:
        yield Finding(rank=NOTE, what=said, do=_INIT)
    for said in problems:
        yield Finding(rank=BAD, what=said, do=_INIT)
    if not notes and not problems:
        yield Finding(rank=GOOD, what=f"{facts.name}: settings are right")


def _holds(operator: Operator, group: str | None) -> Iterator[Finding]:
    now = operator.broker_time()
    standing = operator.standing(group)
    yield Finding(rank=GOOD, what=f"on the topics: {counted(len(standing), 'hold')}")
    for one in standing:
        label = f"{one.key.scope} {one.source}:{one.key.owner} of {one.key.group}"
        read = patterns.read_key(one.key)
        if read.trouble is not None:
            yield Finding(
                rank=BAD,
                what=f"{label} is not understood here ({read.trouble})",
                do="members of this version obey it as @all: upgrade, or resume it",
            )
        if one.expires_at is not None and one.is_over(now):
            yield Finding(
                rank=NOTE,
                what=f"{label} expired at {utc(one.expires_at)}",
                do="nothing needs doing; safeconsumer resume tidies it away",
            )
