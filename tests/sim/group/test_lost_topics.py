"""Topics that are deleted: control topics that come again, and one of the group's."""

from safeconsumer.cli.errors import Status
from safeconsumer.group import topics
from tests.harness.group.operating import run
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.waiting import wait_for
from tests.sim.group.teams import played


@played()
def test_what_members_keep_of_a_lost_topic_is_lifted_by_name(team: Team) -> None:
    """It was known by words of a report, which named the first four."""
    team.settings = team.quick
    member = team.subscribed()
    team.settled(member)
    scopes = [f"{team.topic}:{number}" for number in range(4)]
    with Polled(member):
        team.operator_holds(*scopes, team.topic, "@all")
        wait_for(lambda: len(member.holds()) == 6, "the holds")
        name = team.settings.operator_topic
        team.broker.delete_topic(name)

        def shown() -> str:
            return run(team, "status", "--group", team.group).stdout

        wait_for(lambda: "  unavailable  " in shown(), "a report of that", pause=1.0)
        assert "1 member, 1 of them report" in shown()
        assert f"not read: no topic {name}: " in shown()
        team.create(name, topics.HOLDS_SETTINGS)
        wait_for(lambda: "kept by members" in shown(), "a report of it", pause=1.0)
        assert "; and 2 more" in shown()
        whose = ("--group", team.group, "--owner", "alice")
        for scope in (*scopes, team.topic, "@all"):
            ended = run(team, "resume", scope, *whose)
            assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
            assert f"lifted {scope} operator:alice" in ended.stdout
        wait_for(lambda: not member.holds(), "the lifts")
        ended = run(team, "resume", "@all", *whose)
        assert "was not held: @all operator:alice" in ended.stdout


@played()
def test_what_was_deleted_does_not_flow(team: Team) -> None:
    """A member that assigns it itself still reports that it delivers it."""
    team.settings = team.quick
    team.broker.lab.cluster.creates_topics = False
    member = team.member()
    member.assign(team.partitions)
    waits = ("wait", "flowing", team.topic, "--group", team.group, "--timeout")
    with Polled(member):
        wait_for(
            lambda: run(team, *waits, "0s").exit_code == Status.DONE,
            "a report of it",
            pause=1.0,
        )
        team.broker.delete_topic(team.topic)
        for what in (waits, ("wait", "flowing", *waits[3:])):
            ended = run(team, *what, "5s")
            assert ended.exit_code == Status.FAILED
            assert ended.stderr == (
                f"safeconsumer: not flowing: there is no topic {team.topic} any more\n"
            )
