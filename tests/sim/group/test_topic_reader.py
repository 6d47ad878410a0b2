"""When a reader of topics takes the brokers for silent."""

from contextlib import closing

import pytest
from kafka.errors import KafkaTimeoutError

from safeconsumer.group.topic_reader import TopicReader
from tests.sim.group.operating import Operator
from tests.sim.lab import Lab
from tests.sim.playing import simulated


@simulated(seeds=2)
def test_time_spent_on_records_is_no_silence(lab: Lab) -> None:
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
def test_brokers_that_do_not_answer_are_silent_after_a_while(lab: Lab) -> None:
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
