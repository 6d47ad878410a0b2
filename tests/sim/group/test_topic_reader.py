"""When a reader of topics takes the brokers for silent."""

from contextlib import closing

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError

from safeconsumer.group.topic_reader import TopicReader
from tests.sim.group.operating import Operator
from tests.sim.playing import simulated


@simulated(seeds=2)
def test_time_spent_on_records_is_no_silence(lab):
    """One answer may hold records for many polls: meanwhile nothing is fetched."""
    Operator(lab).write(*[(b"%d" % number, b"x") for number in range(100)])
    with closing(TopicReader({**lab.connection, "max_poll_records": 10})) as reader:
        reader.begin(["ops"])
        assert reader.turn(500)
        fault = lab.cluster.fail("Fetch", is_held=True)
        while reader.turn(10):
            lab.sleep(2.0)
        assert reader.is_complete
        lab.sleep(60.0)  # its caller was stopped, say
        reader.turn(500)
        fault.end()


@simulated(seeds=2)
def test_brokers_that_do_not_answer_are_silent_after_a_while(lab):
    Operator(lab)
    with closing(TopicReader(lab.connection)) as reader:
        reader.begin(["ops"])
        for _ in range(100):
            reader.turn(500)
        fault = lab.cluster.fail("Fetch", is_held=True)
        began = lab.now
        with pytest.raises(KafkaTimeoutError, match="no answer to a fetch for 5 s"):
            any(reader.turn(500) for _ in range(120))
        assert 5.0 <= lab.now - began <= 7.0
        fault.end()


@pytest.mark.contract("P20", "G2")
@pytest.mark.parametrize("is_open", [True, False], ids=["reading", "closed"])
@simulated(seeds=2)
def test_a_topic_that_was_cut_is_read_from_its_beginning(lab, *, is_open):
    """An operator's hold may be among the records that the new leader got."""
    Operator(lab).write(*[(b"%d" % number, b"old") for number in range(10)])
    base = {**lab.connection, "metadata_max_age_ms": 1000}
    with closing(TopicReader(base)) as reader:
        reader.begin(["ops"])
        while not reader.is_complete:
            reader.turn(500)
        if not is_open:
            reader.close()
        lab.cluster.truncate("ops", 0, 5)
        lab.cluster.append("ops", 0, [b"new"] * 10)
        found = read_again(reader)
    assert found == [b"old"] * 5 + [b"new"] * 10


def read_again(reader):
    """Begin again after each error, as callers do; return the last beginning's values."""
    found = []
    for _ in range(40):
        try:
            found += [one.value for one in reader.turn(500).get("ops", [])]
        except KafkaError:
            reader.close()
            if reader.begin(["ops"]):
                found = []
    return found
