"""Partition names in messages, tables and JSON are valid targets of commands."""

import pytest
from attrs import evolve
from kafka import TopicPartition
from kafka.errors import CorruptRecordError

from safeconsumer._kafka.pausing.commits import _refusal_text
from safeconsumer.cli.letters import Wanted
from safeconsumer.errors.kafka_python import CorruptBatchError
from safeconsumer.group.partitions import names, partitions_text
from safeconsumer.group.view import Answer, Row
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.ranges import spread
from safeconsumer.spark.offsets import named
from safeconsumer.spark.python.reading import Range
from safeconsumer.spark.skipping import Skip
from safeconsumer.testing import make_record
from safeconsumer.worker.letters_format import Letter
from tests.harness.listing import short

# The text re:3 means the pattern "3", although a topic may be named ``re``.
TPS = [TopicPartition("re", number) for number in (0, 1, 2, 7)]
CRC = CorruptRecordError("crc")


@pytest.mark.parametrize("origin", ["re:re:3", "re:re:3@7", "re:3", "re:3@7", "re"])
def test_dead_letters_can_be_selected_by_the_origin_that_log_lines_print(origin):
    record = make_record(topic="dead")
    letter = Letter(record=record, topic="re", partition=3, offset=7)
    assert Wanted(origins=(origin,)).takes(letter)
    assert not Wanted(origins=(origin,)).takes(evolve(letter, topic="orders"))


@pytest.mark.parametrize("write", [partitions_text, named])
def test_printed_partition_range_is_a_valid_target(write):
    (text,) = (
        write([*TPS, TopicPartition("orders", 1)]).removeprefix("orders:1 ").split()
    )
    found = [scopes.parse(one) for one in spread(text)]
    assert [scopes.partition(*tp) for tp in TPS] == found


@pytest.mark.parametrize(
    "text",
    [
        *names(TPS[:1]),
        Row(tp=TPS[0], answer=Answer.UNKNOWN).name,
        str(Range("re", 0, 1, 2)),
        Skip(topic="re", partition=0, to=7, reason="x", owner="o").where,
        str(CorruptBatchError.of(CRC, TPS[0], 7, is_of_broker=True)),
        _refusal_text(TPS[:1], "why").removeprefix("commit of "),
    ],
    ids=short,
)
def test_partition_name_at_the_start_of_a_message_is_a_valid_target(text):
    assert scopes.parse(text.split()[0]) == scopes.partition("re", 0)
