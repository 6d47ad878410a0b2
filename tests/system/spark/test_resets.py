"""G10 beside a stream: offsets of a group are moved, and those of its streams are not."""

import pytest

from safeconsumer.cli.errors import Status
from tests.harness.group.team import run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.spark.lake import progress, until
from tests.system.spark.test_control import operator
from tests.system.spark.test_quiet import reporting

__all__ = ["operator"]  # a fixture

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.real_broker,
    pytest.mark.timeout(400),
]


def operate(operator, *arguments):
    ended = run(operator.team, *arguments, "--group", operator.group)
    assert (ended.exit_code, ended.stderr) == (Status.DONE, ""), ended.output
    return ended.stdout


def ends(query):
    """Return where the next plan of a stream ends, by topic and partition."""
    before = query.lastProgress
    until(lambda: query.lastProgress != before, query)
    return progress(query)[-1]["sources"][0]["endOffset"]


@pytest.mark.contract("G10")
def test_a_stream_of_the_group_is_named_and_keeps_its_offsets(lake, operator):
    """Its member is moved back, and `wait moved` ends though the stream moves nothing."""
    team, topic, alice = operator.team, lake.orders, ("--owner", "alice")
    member = team.member("a", control=team.quick)
    member.subscribe([topic])
    lake.produce(topic, 5)
    trigger = {"processingTime": "200 milliseconds"}
    query = lake.start(trigger=trigger, **reporting(operator))
    until(lambda: lake.rows() == lake.produced(), query)
    came = {}
    poll_until(member, lambda: sum(map(len, came.values())) == 20, got=came)
    member.commit()
    with Polled(member):
        operate(operator, "pause", topic, *alice, "--reason", "x", "--wait", "60s")
        before = ends(query)
        lake.produce(topic, 5)
        asked = ("reset-offsets", topic, *alice, "--to", "2")
        assert "stream is a stream: its offsets do not move" in operate(
            operator, *asked
        )
        operate(operator, "wait", "moved", "--timeout", "60s")
        assert ends(query) == before
        assert lake.rows() != lake.produced()
    operate(operator, "resume", topic, *alice)
    came = {}
    poll_until(member, lambda: sum(map(len, came.values())) == 32, got=came)
    assert {tuple(offsets) for offsets in came.values()} == {tuple(range(2, 10))}
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()
