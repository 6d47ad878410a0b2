"""Scenarios of what only our client has: group holds, hand-over, workers."""

import threading
from typing import Any

from safeconsumer import Control, Worker
from safeconsumer.group import clients
from safeconsumer.group import topics as control_topics
from safeconsumer.group.publisher import changes, new_hold, publish
from tests.sim.parity.catalogue import ours
from tests.sim.parity.stages import Stage


def _control(s: Stage) -> Control:
    for text in ("ops", "own"):
        s.topic(text, settings=dict(control_topics.HOLDS_SETTINGS))
    s.topic("status", settings=dict(control_topics.STATUS_SETTINGS))
    names = {f"{kind}_topic": s.name(text) for kind, text in _CONTROL.items()}
    return Control(**names)


_CONTROL = {"operator": "ops", "group": "own", "status": "status"}


def _publish(s: Stage, hold: Any) -> None:  # noqa: ANN401 - a hold, or none
    writer = clients.producer(s.connection, 30.0)
    change = changes(s.group, "alice", ["@all"], hold)
    publish(lambda: writer, s.name("ops"), change, 30.0)
    writer.close()


@ours
def a_group_hold_reaches_members_of_now_and_of_later(s: Stage) -> None:
    """G1: nobody is given a record from when they obey until it is lifted."""
    control = _control(s)
    partitions = s.topic(partitions=4, records=5)
    members = [s.member("t", control=control) for _ in range(2)]
    for one in members:
        one.owns(2)
    s.until(lambda: sum(len(one.records) for one in members) >= 20, "all records")
    for one in members:
        one.settle()
        one.call(lambda consumer: consumer.commit())
    before = sum(len(one.records) for one in members)
    _publish(s, new_hold("test", None))
    s.until(lambda: all(len(one.consumer.paused()) == 2 for one in members), "quiet")
    s.append(5, *partitions)
    members.append(s.member("t", control=control))
    s.until(lambda: all(one.consumer.assignment() for one in members), "a third")
    for one in members:
        one.settle()
    s.facts["leaked"] = sum(len(one.records) for one in members) - before
    s.facts["held"] = sorted(len(one.consumer.paused()) for one in members)
    _publish(s, None)
    s.until(lambda: not any(one.consumer.paused() for one in members), "lifted")
    s.until(lambda: sum(len(one.records) for one in members) - before >= 20, "the rest")
    s.facts["after"] = sum(len(one.records) for one in members) - before


@ours
def a_pause_is_handed_over_in_a_join(s: Stage) -> None:
    """G7: what its owner paused is paused at the next one, who may lift it."""
    (tp,) = s.topic(records=5)
    a = s.member("t", pause_handover="assignor")
    a.owns(1)
    a.settle()
    a.call(lambda consumer: consumer.commit())
    a.call(lambda consumer: consumer.pause(tp))
    b = s.member("t", pause_handover="assignor")
    first = a.generation()
    s.until(lambda: b.generation() > first, "both have joined")
    a.close()
    b.owns(1)
    s.append(5, tp)
    b.settle()
    s.facts["paused"] = len(b.consumer.paused())
    s.facts["leaked"] = b.values(tp)
    b.call(lambda consumer: consumer.resume(tp))
    b.settle()
    s.facts["after"] = b.values(tp)


@ours
def a_worker_with_slow_handlers(s: Stage) -> None:
    """W4: what is done is committed, once each and in order."""
    partitions = s.topic(partitions=2, records=5)
    seen: list[tuple[int, int]] = []
    may_end = threading.Event()

    def handle(record: Any, _: Any) -> None:  # noqa: ANN401 - a handler's own
        may_end.wait()
        seen.append((record.partition, record.offset))

    reader = s.consumer("t", group_id=s.group)
    worker = Worker(reader.consumer, handle)
    reports: list[Any] = []
    s.start("worker", lambda: reports.append(worker.run()))
    s.until(lambda: worker.stats().running == 2, "two handlers")
    may_end.set()
    s.until(lambda: worker.stats().done == 10, "all done")
    worker.stop()
    s.until(lambda: reports, "a report")
    s.facts["seen"] = [[n for p, n in seen if p == tp.partition] for tp in partitions]
    other = s.consumer(group_id=s.group).consumer
    s.facts["committed"] = [other.committed(tp) for tp in partitions]
