"""What an operator is told, against what members do."""

import pytest
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import waiting
from safeconsumer.group.follower import Follower
from safeconsumer.group.operator import Operator
from safeconsumer.holds.scope import Everything
from tests.harness.kafka.patience import patient
from tests.harness.waiting import wait_for

# Of clients whose requests do not end before a test's time does.
PATIENT = patient(3_600_000, connections_max_idle_ms=7_200_000)


@pytest.mark.real_broker
def test_a_group_of_the_new_protocol_is_not_called_empty(team):
    """KIP-848: describing it as a group of the old kind answers that there is none."""
    import confluent_kafka  # noqa: PLC0415 - of the extra ci

    servers = ",".join(team.broker.client_config["bootstrap_servers"])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": team.group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([team.topic])
        wait_for(lambda: consumer.poll(0.1), "a first record", pause=0)
        with Operator(team.broker.client_config, team.quick) as operator:
            view = operator.look(team.group)
            listed = [one for one in operator.survey() if one.group == team.group]
        states = [one.facts.state for one in (view, *listed)]
        assert states == ["Unknown", "Unknown"]
        assert not view.quietness([Everything()]).is_reached
        consumer.commit(asynchronous=False)
        with (
            Follower(team.broker.client_config, team.quick) as following,
            Operator(team.broker.client_config, team.quick) as operator,
        ):

            def is_like():
                seen = following.snapshot().views.get(team.group)
                return seen is not None and seen.facts == operator.group(team.group)

            wait_for(is_like, "what a command sees")
            committed = following.snapshot().views[team.group].facts.committed
            assert committed
    finally:
        consumer.close()


@pytest.mark.embedded_broker
def test_a_broker_that_stops_answering(team):
    """What waits is left behind, and the next look has clients of its own."""
    team.operator_holds("@all")
    with Operator(team.broker.client_config, team.quick) as operator:

        def look(seconds):
            return len(operator.within(seconds, lambda one: one.holds(team.group)))

        assert look(20.0) == 1
        silence = team.broker.hold("ListOffsets", client_id="safeconsumer-cli")
        with pytest.raises(KafkaTimeoutError):
            look(0.3)
        silence.wait()
        silence.release()
        assert look(20.0) == 1


@pytest.mark.embedded_broker
def test_a_broker_that_freezes_while_a_scope_is_looked_up(team):
    """What a wait asks beside its look had the client's own limit, not the wait's."""
    team.operator_holds(team.topic)
    base = {**team.broker.client_config, **PATIENT}
    with Operator(base, team.quick) as operator:
        asked = []

        def check(one, _):
            if not asked:
                team.broker.freeze()
            asked.append(one)
            one.topics()

        operator.look(team.group, timeout=20.0)  # the clients are made
        try:
            with pytest.raises(KafkaTimeoutError):
                waiting.wait_until(
                    operator, team.group, lambda _: (True, "never seen"), 2.0, check
                )
        finally:
            team.broker.unfreeze()
        assert asked
