"""``status --watch``: what a watcher is told while a broker comes to a stop."""

from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import watching
from safeconsumer.group.backlog import Pace
from safeconsumer.group.operator import Operator
from tests.harness.group.team import Team


@pytest.mark.embedded_broker
def test_a_broker_that_stops_between_two_questions(
    kafka_broker: Any,  # noqa: ANN401 - any kind
) -> None:
    """
    The backlog is asked for within the look's limit.

    It went on for 30 s, and what was seen before was shown as new.
    """
    with Team(kafka_broker) as team:
        team.operator_holds(team.topic)
        member = team.subscribed("a")
        team.settled(member)
        member.commit()
        # No request of its clients ends before this test's time does.
        patient = {
            "request_timeout_ms": 3_600_000,
            "connections_max_idle_ms": 7_200_000,
        }
        base = {**team.broker.client_config, **patient}
        with Operator(base, team.settings) as operator:
            seen = operator.look(team.group, timeout=10)
            kafka_broker.freeze()
            with pytest.raises(KafkaTimeoutError):
                watching._backlog(operator, seen, Pace(), 2.0)
            kafka_broker.unfreeze()
