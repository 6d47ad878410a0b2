"""A consumer in a group and on a topic of its own, held, with a journal of what it did."""

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import field, mutable
from kafka.admin import MemberToRemove
from kafka.errors import NoError, RetriableError
from kafka.structs import TopicPartition

from safeconsumer.audit.checker import Settings, check
from safeconsumer.audit.journal import read
from safeconsumer.audit.writer import JournalWriter
from tests.harness.members import partitions_of
from tests.harness.regression.lab import Lab
from tests.harness.regression.support import Reader, positions, wait_until

EACH = 20
"""Records that each partition has from the start."""

STAYS = {"session_timeout_ms": 30_000, "reconnect_backoff_max_ms": 1000}
"""
A session that outlasts every outage here, so that nobody is evicted by chance; and a
broker that is back is asked soon, however long it was away.
"""

PATIENCE = 30.0
"""Seconds: a resume may fall into an outage and into finding the broker again."""

OWNER = "alice"
SCOPES = ("partition", "topic", "pattern", "everything")


@mutable
class Held:
    """
    One consumer, and what of it a hold of one scope covers.

    The held topic has four partitions; records of ``witness`` prove that the consumer
    fetches, where the hold is not of everything.
    """

    lab: Lab
    scope: str
    assignor: str
    journals: Path
    group: str = field(init=False)
    tps: list[TopicPartition] = field(init=False)
    witness: TopicPartition = field(init=False)
    reader: Reader = field(init=False)

    def __attrs_post_init__(self) -> None:
        topic, self.tps = self.lab.topic_with(EACH)
        (self.witness,) = partitions_of(self.lab.topic(1), 1)
        self.group = self.lab.name("g")
        self.reader = self._member(f"{self.scope}-of-{topic}")

    def _member(self, name: str) -> Reader:
        return self.lab.reader(
            "safe",
            self.tps[0].topic,
            self.witness.topic,
            group=self.group,
            assignor=self.assignor,
            client_id=name,
            journal=self.journals,
            **STAYS,
        )

    @property
    def consumer(self) -> Any:  # noqa: ANN401 - untyped, as the lab has it
        return self.reader.consumer

    @property
    def held(self) -> list[TopicPartition]:
        """What the hold covers."""
        match self.scope:
            case "partition":
                return self.tps[:2]
            case "everything":
                return [*self.tps, self.witness]
            case _:
                return self.tps

    def begin(self) -> None:
        """
        Own everything, take half of one partition's records, commit, and be held.

        What else was fetched stays in the consumer.
        """
        everything = [*self.tps, self.witness]
        self.reader.until_joined(self.reader.owns(everything))
        self.reader.take(EACH // 2)
        self.consumer.commit()
        self.place(OWNER)

    def place(self, owner: str) -> None:
        """Place the hold for an owner."""
        match self.scope:
            case "partition":
                self.consumer.pause(*self.held, owner=owner)
            case "topic":
                self.consumer.pause(self.tps[0].topic, owner=owner)
            case "pattern":
                pattern = re.compile(re.escape(self.tps[0].topic[:-1]) + ".")
                self.consumer.pause(pattern, owner=owner)
            case _:
                self.consumer.pause_all(owner=owner)

    def where(self) -> dict[TopicPartition, int | None]:
        """Return where the consumer stands in what is held."""
        return positions(self.consumer, self.held)

    def membership(self) -> tuple[str, int]:
        """Return the member id and the generation."""
        known = self.consumer._coordinator._generation
        return known.member_id, known.generation_id

    def is_alone(self) -> bool:
        """Tell whether it owns everything, and no join is under way."""
        owned = self.consumer.assignment() == {*self.tps, self.witness}
        return owned and not self.consumer._coordinator.rejoining

    # ------------------------------------------------------------ others

    def rival(self, count: int) -> None:
        """Have another member own everything, read so many records, commit, and leave."""
        rival = self._member("rival")
        rival.until_joined(rival.owns([*self.tps, self.witness]))
        rival.take(max(0, count - len(rival.log)))
        rival.consumer.commit()
        rival.consumer.close(autocommit=False, timeout_ms=5000)


def evict(broker: Any, group: str, member_id: str) -> None:  # noqa: ANN401 - of the fixture
    """Take a member out of its group, as an expired session does."""

    def is_out() -> bool:
        with broker.admin() as admin, contextlib.suppress(RetriableError):
            told = admin.remove_group_members(group, [MemberToRemove(member_id)])
            assert told == {member_id: NoError}
            return True
        return False  # a broker that has just started does not know its groups yet

    wait_until(is_out)


def acknowledge(lab: Lab, journals: Path, tps: Iterable[TopicPartition]) -> None:
    """Write into a journal what the broker has acknowledged of these partitions."""
    producer = JournalWriter(journals, member="producer")
    for tp in tps:
        name, last = f"{tp.topic}:{tp.partition}", lab.end(tp) - 1
        producer.write("acked", {"tp": name, "first": 0, "last": last})


def judged(journals: Path, clock_skew: float = 0.0) -> tuple[list[str], set[str]]:
    """
    Return what the audit finds, and which checks it could not judge.

    All that was acknowledged is to have been delivered.
    """
    told = [read(path) for path in sorted(journals.glob("*.journal"))]
    assumed = Settings(is_drained=True, patience=PATIENCE, clock_skew=clock_skew)
    verdicts = check(told, assumed).values()
    assert verdicts
    found = [one.evidence for verdict in verdicts for one in verdict.findings]
    return found, {name for verdict in verdicts for name in verdict.unjudged}
