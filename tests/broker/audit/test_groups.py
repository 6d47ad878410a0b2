"""Whose a journal is: the group of the consumer that writes it, whatever its head says."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.audit.findings import Address
from safeconsumer.audit.stream import sources
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.testing.clients import Clients
from tests.broker.audit.test_built_in import filled, has
from tests.harness.audit.bad import TP
from tests.harness.audit.telling import Telling, check, read
from tests.harness.polling import poll_until


@pytest.mark.any_broker
def test_one_writer_serves_consumers_of_several_groups_in_turn(
    clients: Clients, tmp_path: Path
) -> None:
    """README's ``JournalWriter(folder, member=...)``: each is judged by its own."""
    topic = filled(clients, 1)
    writer = JournalWriter(tmp_path, member="a")
    groups = sorted(uuid4().hex for _ in range(2))
    for group in groups:
        consumer = clients.consumer(SafeConsumer, topic, group=group, journal=writer)
        got: dict[Any, list[int]] = {}
        poll_until(consumer, has(got, 20), got=got)
        consumer.commit()
        consumer.close()
    verdicts = check([read(writer.path)])
    assert list(verdicts) == [Address(group, topic, 0) for group in groups]
    assert [one.findings for one in verdicts.values()] == [(), ()]
    assert [one.unjudged for one in verdicts.values()] == [{}, {}]


@pytest.mark.any_broker
def test_what_is_polled_without_moving_on_comes_again(
    clients: Clients, tmp_path: Path
) -> None:
    """``poll(update_offsets=False)`` of a correct program is no fault."""
    topic = filled(clients, 1)
    consumer = clients.consumer(SafeConsumer, group=uuid4().hex, journal=tmp_path)
    consumer.assign([TopicPartition(topic, 0)])
    first: dict[Any, Any] = {}
    while not first:
        first = consumer.poll(1000, update_offsets=False)
    got: dict[Any, list[int]] = {}
    poll_until(consumer, has(got, 20), got=got)
    consumer.commit()
    consumer.close()
    (path,) = tmp_path.glob("*.journal")
    (verdict,) = check([read(path)]).values()
    assert (verdict.findings, verdict.unjudged) == ((), {})


def test_the_parts_of_a_journal_are_found_together(tmp_path: Path) -> None:
    """Their heads say the first group, also after another one was named."""
    writer = JournalWriter(tmp_path, member="a", part_bytes=1)
    writer.belong_to("g")
    writer.write("assigned", {"partitions": [TP], "generation": 1})
    (source,), troubles = sources(tmp_path.glob("*.journal"))
    assert troubles == []
    assert list(check([source])) == [Address("g", "orders", 0)]


def test_what_another_consumer_held_holds_nothing_here() -> None:
    """One writer, two groups in turn: the first one's hold is its own."""
    told = Telling("a", group="one").assigned(TP).pause("orders").revoked(TP)
    told.then("group", group="two").assigned(TP, generation=1).poll(TP, 0, 5)
    verdicts = check([told.journal()])
    assert [one.group for one in verdicts] == ["one", "two"]
    assert [one.findings for one in verdicts.values()] == [(), ()]


def test_a_member_that_hides_its_group_is_not_judged_by_others() -> None:
    """It names a generation, so it was in one: neither clean, nor wrong."""
    one = Telling("a", group="").assigned(TP).poll(TP, 0, 20).commit(TP, 20)
    two = Telling("b", group="", at=2000).assigned(TP, generation=2).poll(TP, 0, 20)
    (verdict,) = check([one.journal(), two.journal()]).values()
    assert verdict.findings == ()
    assert set(verdict.unjudged) == {"A2", "A4", "A6", "G2"}
