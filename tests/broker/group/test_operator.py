"""Tests an operator's view of groups with either protocol, even if brokers do not respond."""

import pytest
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import waiting
from safeconsumer.group.follower import Follower
from safeconsumer.group.operator import Operator
from safeconsumer.group.verdicts import SILENT
from safeconsumer.holds.scope import Everything
from tests.harness.group.team import run
from tests.harness.kafka.patience import patient
from tests.harness.members import Polled
from tests.harness.waiting import wait_for

# Settings for clients whose requests do not time out before the test ends.
PATIENT = patient(3_600_000, connections_max_idle_ms=7_200_000)


def owners(view):
    """Return the owner of each partition in a view."""
    return {tp.partition: row.owner for tp, row in view.rows.items()}


def is_shared(team, *members):
    """Return whether each partition has one owner, and each member owns a partition."""
    owned = [tp for one in members for tp in one.assignment]
    return all(one.assignment for one in members) and sorted(owned) == team.partitions


@pytest.mark.real_broker
@pytest.mark.contract("G8")
def test_pause_with_wait_succeeds_in_a_group_of_the_newer_protocol(team):
    """The group uses the protocol of KIP-848."""
    from tests.harness.group.confluent import (  # noqa: PLC0415 - of the extra ci
        ConfluentMember,
    )

    with (
        ConfluentMember(team, "a", control=team.quick) as a,
        ConfluentMember(team, "b", control=team.quick) as b,
        Operator(team.broker.client_config, team.quick) as operator,
    ):
        wait_for(lambda: is_shared(team, a, b), "an assignment")
        placed = run(
            team,
            *("pause", team.topic, "--group", team.group),
            *("--owner", "alice", "--reason", "move", "--wait", "30s"),
        )
        assert placed.exit_code == 0, placed.output
        assert "2 of 2 members quiet" in placed.output
        view = operator.look(team.group)
        assert (view.facts.state, view.verdict.words) == ("Stable", "quiet")
        assert set(owners(view).values()) == {"a", "b"}
        # The view names a third member, which does not obey holds and still receives
        # records.
        with ConfluentMember(team, "plain") as plain:
            wait_for(lambda: is_shared(team, a, b, plain), "a share for the third")

            def settled():
                nonlocal view
                view = operator.look(team.group)
                held = a.assignment | b.assignment
                return view.facts.state == "Stable" and all(
                    view.rows[tp].is_good for tp in held
                )

            # The members' reports of the new generation may arrive after the
            # coordinator's response.
            wait_for(settled, "reports of both members")
            silent = [one.name for one in view.members if one.verdict == SILENT]
            assert silent == ["plain"]
            assert view.verdict.words in {"unknown", "held but flowing"}
            theirs = {tp.partition for tp in plain.assignment}
            assert {n for n, name in owners(view).items() if name == "plain"} == theirs
            assert not any(view.rows[tp].is_good for tp in plain.assignment)


@pytest.mark.real_broker
def test_classic_member_obeys_holds_in_a_group_of_the_newer_protocol(team):
    """Kafka lets both kinds of members share a group; the view names one as silent."""
    from tests.harness.group.confluent import (  # noqa: PLC0415 - of the extra ci
        ConfluentMember,
    )

    with (
        ConfluentMember(team, "new") as new,
        Polled(old := team.subscribed("old", control=team.quick)),
        Follower(team.broker.client_config, team.quick) as following,
        Operator(team.broker.client_config, team.quick) as operator,
    ):
        wait_for(
            lambda: (
                old.assignment()
                and sorted(new.assignment | old.assignment()) == team.partitions
            ),
            "an assignment",
        )
        team.operator_holds(team.topic)

        def is_known():
            view = operator.look(team.group)
            return view.facts.state == "Stable" and all(
                view.rows[tp].is_good for tp in old.assignment()
            )

        wait_for(is_known, "a member that obeys")
        view = operator.look(team.group)
        assert [one.name for one in view.members if one.verdict == SILENT] == ["new"]
        assert not view.quietness([Everything()]).is_reached
        assert not any(view.rows[tp].is_good for tp in new.assignment)

        def is_like():
            seen = following.snapshot().views.get(team.group)
            return seen is not None and seen.facts == operator.group(team.group)

        wait_for(is_like, "what a command sees")


@pytest.mark.embedded_broker
def test_view_times_out_if_the_broker_is_silent(team):
    """After the timeout the next view succeeds with new clients."""
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
def test_check_of_a_scope_times_out_if_the_broker_is_frozen(team):
    team.operator_holds(team.topic)
    base = {**team.broker.client_config, **PATIENT}
    with Operator(base, team.quick) as operator:
        asked = []

        def check(one, _):
            if not asked:
                team.broker.freeze()
            asked.append(one)
            one.topics()

        operator.look(team.group, timeout=20.0)  # this call creates the clients
        try:
            with pytest.raises(KafkaTimeoutError):
                waiting.wait_until(
                    operator, team.group, lambda *_: (True, "never seen"), 2.0, check
                )
        finally:
            team.broker.unfreeze()
        assert asked
