"""The control topics, as `safeconsumer history -o json` and the audit read them."""

import time

import pytest

from safeconsumer.audit.control import from_history
from safeconsumer.cli.control_topics import read_control
from tests.harness.group.team import Team, run


@pytest.mark.any_broker
def test_the_history_and_the_audit_pass_over_a_record_that_cannot_be_read(kafka_broker):
    """It is no gap: both say that the topics are complete."""
    with Team(kafka_broker) as team:
        team.operator_holds(team.topic)
        junk = {"key": b"junk", "value": b"junk"}
        for name in team.settings.topics:
            team.producer.send(name, **junk).get(timeout=20)
        began = time.time()
        told = from_history("history", run(team, "history", "-o", "json").stdout)
        live = read_control(kafka_broker.client_config, team.settings.topics)
    assert told.since == live.since == 0.0
    assert told.spans == live.spans
    assert told.until is not None
    assert began - 5 <= told.until <= time.time() + 5
