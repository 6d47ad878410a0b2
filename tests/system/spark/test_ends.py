"""Tests that a run with the trigger AvailableNow or Once fails if it gets no decision."""

import socket
from uuid import uuid4

import pytest

from tests.harness.spark.lake import LIMIT, until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


def failure(query):
    """Wait until a query has failed; return its error."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415  if installed

    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(LIMIT)
    return str(caught.value)


def away():
    """Return options that name control topics which do not exist."""
    mark = uuid4().hex[:8]
    return {
        "holds_control": "true",
        "holds_topic": f"away-{mark}",
        "holds_statusTopic": "",
        "holds_group": "g",
        "holds_controlTimeoutMs": "1000",
    }


@pytest.mark.nightly
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}])
def test_finite_run_with_a_second_source_fails_without_control_topics(lake, trigger):
    """S4: Spark runs one batch, but does not tell the source that the run is finite."""
    lake.produce(lake.orders, 5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = lake.spark.readStream.format("socket").options(
            host="127.0.0.1", port=server.getsockname()[1]
        )
        frame = lake.stream(away())
        rows = frame.selectExpr("cast(value as string) as value").union(other.load())
        why = failure(lake.write(rows, trigger))
    assert "the holds cannot be read, so this run may not read" in why
    assert not lake.rows()


@pytest.mark.contract("S4")
def test_missing_control_topics_fail_a_finite_run(lake):
    """S4: the run fails even if there are no records; the next run reads all records once."""

    def is_answered():
        why.append(failure(lake.start(**away())))
        assert "the holds cannot be read, so this run may not read" in why[-1]
        return "no broker answered in time" not in why[-1]

    for _ in range(2):
        why = []
        until(is_answered)  # a busy broker may exceed the timeout
        assert "no topic away-" in why[-1]
        assert "run safeconsumer control init" in why[-1]
        lake.produce(lake.orders, 5)
    assert not lake.rows()
    lake.run()
    assert lake.rows() == lake.produced()


@pytest.mark.nightly
def test_finite_run_fails_if_a_decision_hangs(lake, controller, monkeypatch):
    """S4: a decision that Python does not return in time counts as no decision."""
    from threading import Event  # noqa: PLC0415  near its use

    go = Event()
    real = controller.bridge._answer

    def slow(question, facts):
        if question == "plan":
            go.wait(LIMIT)
        return real(question, facts)

    monkeypatch.setattr(controller.bridge, "_answer", slow)
    lake.produce(lake.orders, 5)
    try:
        why = failure(lake.start(holds_decisionTimeoutMs="300"))
    finally:
        go.set()
    assert "no decision within 300 ms" in why
    assert not lake.rows()
