"""A worker that can get no record says so, in its health and by an event."""

from typing import Any

import pytest

from safeconsumer import events
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.any_broker


def note(_record: object, _context: object) -> None: ...


def reasons(running: Running) -> list[str]:
    return [e.reason for e in running.events if type(e) is events.NothingConsumed]


def test_a_pattern_that_matches_nothing(lab: Lab) -> None:
    """Until a topic is made that it matches."""
    topic = lab.new_topic(partitions=1)
    name = f"{topic}-later"
    consumer = lab.groupless(metadata_max_age_ms=300)
    consumer.subscribe(pattern=f"^{name}$")
    running = lab.run(note, consumer)
    wait_for(lambda: reasons(running), "an event")
    why = f"no topic matches the pattern '^{name}$'"
    assert reasons(running) == [why]
    health = running.worker.healthy()
    assert (bool(health), health.is_alive) == (False, True)
    assert health.reasons == (f"nothing to consume: {why}",)

    lab.broker.create_topic(name, 1)
    wait_for(running.worker.healthy, "the topic to be found")
    lab.broker.delete_topic(name)


def test_a_worker_without_topics(lab: Lab) -> None:
    """Nobody can mend that from outside, and still it is alive."""
    lab.new_topic(partitions=1)
    consumer: Any = lab.groupless()
    running = lab.run(note, consumer)
    wait_for(lambda: reasons(running), "an event")
    assert "no topic is subscribed to" in running.worker.healthy().reasons[0]


def test_settings_for_topics_that_are_not_consumed(lab: Lab) -> None:
    """A name that is mistyped would change nothing, and nobody would notice."""
    topic = lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    running = lab.run(
        None,  # type: ignore[arg-type]  # handlers instead
        handlers={f"{topic}s": note, "@all": note},
        topic_concurrency={topic: 1, f"{topic}s": 1, "re:x.*": 1},
    )
    running.wait_done(1)
    running.end()
    told = [
        (one.setting, one.topics)
        for one in running.events
        if type(one) is events.TopicsNotConsumed
    ]
    assert told == [
        ("handlers", (f"{topic}s",)),
        ("topic_concurrency", (f"{topic}s",)),
    ]


def test_an_idle_worker_is_well(lab: Lab) -> None:
    """One with partitions and nothing in them, and one that is a member without any."""
    lab.new_topic(partitions=1)
    first, second = lab.run(note), lab.run(note)
    wait_for(
        lambda: (
            sorted(len(one.worker._engine.held.epochs) for one in (first, second))
            == [0, 1]
        ),
        "one has the partition, and one has none",
    )
    assert (bool(first.worker.healthy()), bool(second.worker.healthy())) == (True, True)
    assert (reasons(first), reasons(second)) == ([], [])


def test_where_a_partition_starts_is_an_event(lab: Lab) -> None:
    """Reset the first time, committed the second."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["a", "b"]})
    seen = []
    for _ in range(2):
        running = lab.run(note)
        wait_for(
            lambda running=running: any(  # type: ignore[misc]  # mypy knows no default
                type(e) is events.PartitionStarted for e in running.events
            ),
            "an event",
        )
        running.wait_done(2 if not seen else 0)
        running.end()
        seen += [
            (e.partition, e.offset, e.is_committed)
            for e in running.events
            if type(e) is events.PartitionStarted
        ]
    assert seen == [(f"{lab.topic}:0", 0, False), (f"{lab.topic}:0", 2, True)]
