"""What a session keeps open: nothing of streams that failed, and nothing once it stopped."""

import threading

import pytest

from tests.harness.group.team import Team
from tests.harness.processes import ran_python
from tests.harness.spark.lake import LIMIT, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_broker,
    pytest.mark.timeout(600),
    pytest.mark.nightly,
]


def test_nothing_is_left_of_streams_that_could_not_be_opened(lake, controller):
    """No stream, no thread of Python's, none of the JVM's."""
    with Team(lake.broker, partitions=1, records=0) as team:
        team.create("not-compacted", {"cleanup.policy": "delete"})
        options = {
            "holds.control": "true",
            "holds.topic": "not-compacted",
            "holds.statusTopic": "",
            "holds.group": team.group,
        }
        before = set(threading.enumerate())
        for _ in range(3):
            query = lake.start(**options)
            with pytest.raises(Exception, match="not-compacted"):
                query.awaitTermination(60)
        assert controller.bridge.streams() == ()
        left = {one.name for one in set(threading.enumerate()) - before}
        assert not {one for one in left if one.startswith(("safe", "kafka"))}
        until(lambda: "safekafka-decision" not in java_threads(lake))


def test_a_stopped_session_leaves_no_stream_and_says_things_once(lake):
    """
    In a process of its own; a decision hangs for twenty triggers before that.

    A query that is stopped while it is planned is not reported as held.
    """
    program = ("-m", "tests.system.spark.stopping")
    done = ran_python(*program, lake.broker.bootstrap, lake.orders, timeout=LIMIT)
    assert done.stdout.splitlines() == [
        "streams: 1",
        "stopped in a plan: None",
        "after the stop: 0",
        "refused: this session was stopped",
        "another handle: True",
        "and it runs: True",
        "not ended: 1",
        "its port is free: True",
    ], done.stderr
    said = [line for line in done.stderr.splitlines() if "safekafka: " in line]
    held = [line for line in said if "everything is held" in line]
    assert len(held) == 2, said  # no decision in time; the earlier one not back yet
    assert sum("there are decisions again" in line for line in said) == 1, said


def java_threads(lake):
    java = lake.spark.sparkContext._jvm.java.lang
    return {one.getName() for one in java.Thread.getAllStackTraces().keySet()}
