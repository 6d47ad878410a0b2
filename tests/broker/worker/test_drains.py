"""A worker's drain before a join, on a real group."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient

from safeconsumer.testing.polling import poll_until
from safeconsumer.worker import Drain
from tests.harness.waiting import LIMIT, wait_for
from tests.harness.worker.lab import Lab

pytestmark = pytest.mark.any_broker


@pytest.fixture
def admin(lab: Lab) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(**lab.broker.client_config) as made:
        yield made


@pytest.mark.contract("W6")
def test_an_eager_join_waits_for_what_runs(lab: Lab, admin: KafkaAdminClient) -> None:
    """W6: what ends while another member waits to join is done, and nobody repeats it."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"], 1: ["v"]})
    go_on = threading.Event()
    running = lab.run(
        lambda *_: go_on.wait(LIMIT), concurrency=2, drain=Drain(revoke=60.0)
    )
    wait_for(lambda: running.worker.stats().running == 2, "two handlers")
    second = lab.consumer()

    def state() -> Any:  # noqa: ANN401 - kafka-python is untyped
        return admin.describe_groups([lab.group])[lab.group]["group_state"]

    records = poll_until([second], lambda: state() == "PreparingRebalance")
    go_on.set()
    records += poll_until(
        [second], lambda: [second.position(tp) for tp in second.assignment()] == [1]
    )
    assert records == []
    assert lab.committed() == {0: 1, 1: 1}
    report = running.end()
    assert (report.done, report.dropped) == (2, 0)
