"""``status --watch``: what a watcher is told while a broker comes to a stop."""

import time
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import watching
from safeconsumer.cli.backlog import Pace
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
        with Operator(team.broker.client_config, team.settings) as operator:
            seen = operator.look(team.group, timeout=10)
            kafka_broker.freeze()
            began = time.monotonic()
            with pytest.raises(KafkaTimeoutError):
                watching._backlog(operator, seen, Pace(), 2.0)
            assert time.monotonic() - began < 10
            kafka_broker.unfreeze()
