"""What a look costs, and what it shows of what is known."""

import json
from collections import Counter

from kafka.structs import OffsetAndMetadata

from safeconsumer.group.operator import Operator
from tests.harness.group.operating import run
from tests.harness.members import Polled
from tests.harness.waiting import wait_for
from tests.sim.group.teams import played


@played()
def test_a_click_reads_no_reports(team):
    """Whoever only writes read those of all members of all groups."""
    member = team.subscribed()
    team.settled(member)
    read = set()

    def note(_, message):
        if message.api == "ListOffsets":
            read.update(one.name for one in message.body.topics)

    with Polled(member), Operator(team.broker.client_config, team.settings) as one:
        team.operator_holds("@all")
        team.broker.lab.cluster.on_request = note
        (found,), ends = one.standing(team.group)
        assert (found.key.scope, ends) == (
            "@all",
            dict.fromkeys(ends, 0) | {team.settings.operator_topic: 1},
        )
        assert read == set(team.settings.topics)
        seen = one.look(team.group)
        assert team.settings.status_topic in read
        assert (seen.reporting, len(seen.standing)) == (1, 1)


@played()
def test_doctor_reads_the_topics_once(team):
    """It asked for their ends three times, and for each member's reports."""
    member = team.subscribed()
    team.settled(member)
    with Polled(member):
        team.operator_holds("@all")
        wait_for(lambda: member.quiet() == set(team.partitions), "the hold")
        asked = team.broker.lab.cluster.requests
        since = len(asked)
        ended = run(team, "doctor", "--group", team.group)
        kinds = Counter(one.api for one in [*asked][since:] if "cli" in one.client_id)
    assert "obeys everything" in ended.stdout
    assert kinds["ListOffsets"] == 2 + 1


@played()
def test_groups_have_the_lag_of_what_is_held(team):
    """The page had it; `groups -o json` said null of each."""
    member = team.subscribed()
    team.settled(member)
    member.commit({tp: OffsetAndMetadata(2, "", -1) for tp in team.partitions})
    for lag, hold in ((None, None), (6, f"{team.topic}:0-1"), (12, "@all")):
        if hold is not None:
            whose = ("--group", team.group, "--reason", "x")
            assert run(team, "pause", hold, *whose).exit_code == 0
        (one,) = json.loads(run(team, "status", "-o", "json").stdout)
        assert one["lag"] == lag


@played()
def test_a_topic_that_is_cut_by_size_alone_is_kept_for_nobody_knows_how_long(team):
    """It counted as one that keeps everything."""
    with Operator(team.broker.client_config, team.settings) as one:
        for age, size, kept in (
            ("-1", "-1", {"sized": None}),
            ("-1", "1000", {}),
            ("5000", "1000", {"sized": 5.0}),
        ):
            settings = {"retention.ms": age, "retention.bytes": size}
            team.broker.create_topic("sized", 1, settings)
            assert one.retention(["sized"]) == kept
            team.broker.delete_topic("sized")
