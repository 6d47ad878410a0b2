"""Operators' commands with missing or unusual groups, topics and permissions."""

import json
import re
from collections import Counter

import pytest
from kafka.admin import KafkaAdminClient
from kafka.errors import TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from safeconsumer import Control
from safeconsumer.cli.errors import Status
from safeconsumer.group.operator import Operator
from safeconsumer.holds.hold import OUTAGE, WorkerOwner
from tests.harness.group.team import past, run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.producing import produce
from tests.harness.waiting import wait_for
from tests.sim.group.teams import played

QUIET = ("wait", "quiet", "--timeout", "0s")


@played(topic="re", partitions=3)
def test_scope_of_a_topic_named_re_needs_the_prefix_re(team):
    """A scope that looks like a pattern is refused with a hint."""
    consumer = team.ready("billing-1")
    group = ("--group", team.group)
    with Polled(consumer):
        wrong = run(team, "pause", "re:1", *group, "--reason", "x")
        assert wrong.exit_code == Status.USAGE
        assert "for partitions of a topic named re, write re:re:1" in wrong.stderr
        held = run(team, "pause", "re:re:1-2", *group, "--reason", "x", "--wait", "60s")
        assert (held.exit_code, held.stderr) == (Status.DONE, "")
        shown = json.loads(run(team, "status", *group, "-o", "json").stdout)
        assert [one["scope"] for one in shown["holds"]] == ["re:re:1", "re:re:2"]
        lifted = run(team, "resume", "re:re:2", *group)
        assert (lifted.exit_code, "lifted re:re:2" in lifted.stdout) == (0, True)
    poll_until(consumer, lambda: consumer.quiet() == {team.partitions[1]})


@played()
def test_status_shows_the_holds_that_a_worker_places_in_an_outage(team):
    consumer = team.ready("billing-1")
    with Polled(consumer):
        reason = "the bank is down"
        whose = WorkerOwner(OUTAGE)
        consumer.pause(team.topic, owner=whose, reason=reason, for_=3600)
        wait_for(lambda: "4 of 4 quiet" in status(team), "a report of it")
        shown = status(team)
        assert f"4 of 4 quiet  {team.topic} held by worker:outage, since 2" in shown
        assert f"because {reason}, until 2" in shown
        document = json.loads(status(team, "-o", "json"))
        assert reason in document["by_member"][0]["report"]["outages"][0]
        consumer.resume_all(OUTAGE)
        wait_for(lambda: "0 of 4 quiet" in status(team), "a report that it is over")
        assert "held by worker" not in status(team)


def status(team, *more):
    return run(team, "status", "--group", team.group, *more).stdout


@played()
def test_resume_names_the_remaining_holds(team):
    consumer = team.subscribed()
    team.catch_up(consumer)
    team.operator_holds(team.topic, owner="bob")
    group = ("--group", team.group)
    run(team, "pause", "@all", *group, "--reason", "x", "--owner", "alice")
    ended = run(team, "resume", "@all", *group, "--owner", "alice")
    assert "still held" in ended.stdout
    assert f"{team.topic}  operator:bob" in ended.stdout
    assert "operator:alice  since" not in ended.stdout


@played()
def test_wait_quiet_is_refused_without_a_hold(team):
    consumer = team.ready()
    arguments = ("wait", "quiet", "--group", team.group, "--timeout", "20s")
    found = []

    def is_refused():
        found.append(run(team, *arguments))
        return found[-1].exit_code != Status.DONE

    with Polled(consumer):
        is_refused()
        team.operator_holds(team.topic, for_=0.2)
        wait_for(is_refused, "the end of the hold", 20, pause=0)
    for ended in (found[0], found[-1]):
        assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
        assert "has no hold: pause it first" in ended.stderr


@played()
def test_unknown_group_is_refused(team):
    """A mistyped group must not look quiet, or resumed."""
    team.ready()
    for command in (
        ("pause", "@all", "--reason", "x"),
        ("wait", "quiet"),
        ("resume", "@all"),
        ("resume", "--all"),
        ("extend", "@all", "--for", "1h"),
        ("history",),
        ("status",),
    ):
        code, line = bad(team, *command, "--group", f"{team.group}x")
        assert code == Status.USAGE, command
        assert f"mean {team.group} " in line.replace("?", " "), command
    assert past(team) == []
    ended = run(team, "doctor", "--group", f"{team.group}x")
    assert ended.exit_code == Status.FAILED
    assert f"unknown group '{team.group}x', and no hold for it; did you" in ended.stdout


@played()
def test_user_without_a_name_is_asked_for_an_owner(team, monkeypatch):
    def nobody():
        message = "getpwuid(): uid not found: 12345"
        raise KeyError(message)

    monkeypatch.setattr("getpass.getuser", nobody)
    code, line = bad(team, "pause", "@all", "--group", team.group, "--reason", "x")
    assert (code, "--owner" in line) == (Status.USAGE, True)


def bad(team, *arguments):
    ended = run(team, *arguments)
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    return ended.exit_code, ended.stderr


@played()
def test_resume_is_written_if_only_holds_can_be_read(team, monkeypatch):
    """A lift does not need the committed offsets."""
    team.operator_holds(team.topic)
    with monkeypatch.context() as patch:
        patch.setattr(Operator, "group", refusing)
        ended = lift(team)
    assert ended.exit_code == Status.REFUSED
    assert f"lifted and acknowledged: {team.topic}; but" in ended.stderr
    assert [one["is_held"] for one in past(team)] == [True, False]


@pytest.mark.contract("G10")
@played()
def test_unreadable_holds_are_lifted_only_with_force(team, monkeypatch):
    """A reset under these holds may be unfinished."""
    team.operator_holds(team.topic)
    with monkeypatch.context() as patch:
        for name in ("holds", "group"):
            patch.setattr(Operator, name, refusing)
        ended = lift(team)
        assert (ended.exit_code, ended.stdout) == (Status.REFUSED, "")
        assert "the holds cannot be read now: " in ended.stderr
        assert "Nothing was changed: resume --force" in ended.stderr
        ended = lift(team, "--force")
    assert ended.exit_code == Status.REFUSED
    assert f"lifted and acknowledged: {team.topic}; but" in ended.stderr
    assert [one["is_held"] for one in past(team)] == [True, False]


def lift(team, *more):
    whose = ("--group", team.group, "--owner", "alice")
    return run(team, "resume", team.topic, *whose, *more)


def refusing(*_, **__):
    message = "orders"
    raise TopicAuthorizationFailedError(message)


@played()
def test_init_creates_and_corrects_topics_and_keeps_correct_ones(team):
    team.settings = Control.prefixed(f"new-{team.group}-")
    old = {"cleanup.policy": "delete", "max.compaction.lag.ms": "3600000"}
    team.create(team.settings.holds_topic, old)
    first = run(team, "control", "init")
    assert first.exit_code == Status.DONE
    assert f"created {team.settings.status_topic}" in first.stdout
    assert "set cleanup.policy, " in first.stdout
    second = run(team, "control", "init")
    assert [line.split()[0] for line in second.stdout.splitlines()[:2]] == [
        "unchanged"
    ] * 2
    placed = run(
        team, "pause", "@all", "--group", team.group, "--reason", "x", "--future"
    )
    assert placed.exit_code == Status.DONE


@played()
def test_init_refuses_a_topic_with_several_partitions(team):
    """Kafka cannot remove partitions, and doctor gives the same advice."""
    team.settings = Control.prefixed(f"wide-{team.group}-")
    new, wide = reversed(team.settings.topics)
    team.broker.create_topic(wide, 3)
    code, line = bad(team, "control", "init")
    assert (code, "must have 1: delete it" in line) == (Status.REFUSED, True)
    ended = run(team, "doctor")
    assert f"{new} does not exist" in ended.stdout
    assert "must have 1: delete it" in ended.stdout


@played()
def test_missing_control_topics_are_reported_as_one_problem(team):
    team.settings = Control.prefixed(f"none-{team.group}-")
    ended = run(team, "doctor")
    assert ended.exit_code == Status.FAILED
    assert ended.stdout.count("PROBLEM") == 1
    for command in (("pause", "--reason", "x"), ("resume",)):
        code, line = bad(team, *command, "@all", "--group", team.group)
        assert code == Status.REFUSED
        missing = team.settings.holds_topic
        assert f"no topic {missing}: run safeconsumer control init" in line


@played()
def test_doctor_names_the_missing_topics_if_the_prefix_is_mistyped(team):
    there = team.settings.holds_topic
    team.settings = Control.prefixed(team.prefix.replace("_", "-"))
    printed = run(team, "doctor").stdout
    assert f"{team.settings.status_topic}; did you mean {there} or " in printed


@played()
def test_doctor_finds_no_problem_in_a_group_that_obeys_its_holds(team):
    """A note about who can write holds contains the command that lists these users."""
    consumer = team.ready()
    with Polled(consumer):
        with Operator(team.broker.client_config, team.settings) as operator:
            wait_for(
                lambda: any(
                    one.generation is not None and one.generation >= 1
                    for one in operator.look(team.group).reports
                ),
                "its report of the join",
            )
        ended = run(team, "doctor", "--group", team.group, "-o", "json")
    found = json.loads(ended.stdout)
    assert {one["rank"] for one in found} <= {"ok", "note"}
    (note,) = [one for one in found if "list these principals" in one["what"]]
    topics = " ".join(f"--topic {name}" for name in team.settings.topics)
    assert f"--list {topics} --resource-pattern-type match" in note["do"]
    assert ended.exit_code == Status.DONE


@played()
def test_holds_are_known_without_the_status_topic(team, monkeypatch):
    """No member is called a plain client just because its reports cannot be read."""
    consumer = team.ready("billing-1")
    team.operator_holds(team.topic)
    monkeypatch.setattr("safeconsumer.group.settings._STATUS", f"{team.topic}-none")

    with Polled(consumer):
        looked = run(team, "doctor", "--group", team.group)
        shown = run(team, "status", "--group", team.group)
        groups = run(team, "status")
        waited = run(team, *QUIET, "--group", team.group)
    assert looked.exit_code == Status.FAILED
    assert "which members obey is unknown" in looked.stdout
    assert "on the topic: 1 hold" in looked.stdout
    assert f"{team.topic}  operator:alice" in shown.stdout
    assert "reports cannot be read" in waited.stderr
    for one in (looked, shown, groups, waited):
        assert "plain client" not in one.output


@played()
def test_doctor_prints_its_findings_before_an_error(team, monkeypatch):
    monkeypatch.setattr(Operator, "read", refusing)
    for form in ((), ("-o", "json")):
        ended = run(team, "doctor", *form)
        assert ended.exit_code == Status.REFUSED
        assert "settings are right" in ended.stdout
        assert "the rest could not be checked: the broker refuses" in ended.stdout
        assert ended.stderr.count("\n") == 1
    assert json.loads(ended.stdout)[-1]["rank"] == "PROBLEM"


@played()
def test_unsuitable_holds_topic_does_not_mean_that_nothing_is_held(team):
    consumer = team.ready("billing-1")
    team.operator_holds("@all")
    other = f"{team.topic}-otherholds_ops"
    with KafkaAdminClient(**team.broker.client_config) as admin:
        admin.create_topics({other: {"num_partitions": 1}}, wait_for_metadata=True)

    team.settings = team.with_settings(holds_topic=other)

    with Polled(consumer):
        shown = run(team, "status", "--group", team.group)
        groups = run(team, "status")
        waited = run(team, *QUIET, "--group", team.group)
    for one in (shown, groups, waited):
        assert f"{other} has cleanup.policy=delete" in one.output
    assert re.search(rf"^{team.group} .* unknown", groups.stdout, re.MULTILINE)
    assert waited.exit_code == Status.FAILED


@pytest.mark.contract("G8")
@played()
def test_pause_waits_during_a_rebalance_until_its_scope_is_known(team):
    """The owners of partitions are not known during a rebalance."""
    first = team.subscribed("a", control=None)
    poll_until(first, team.has_all(first))
    joining = team.subscribed("b", control=None)
    for _ in range(20):
        joining.poll(100)
    asked = ("--group", team.group, "--reason", "x")
    code, line = bad(team, "pause", f"{team.topic}:3", *asked)
    assert code == Status.USAGE
    assert f"whether {team.group} consumes {team.topic}:3 is not known" in line
    run(team, "pause", f"{team.topic}:3", *asked, "--future")
    waited = ("wait", "quiet", f"{team.topic}:3", "--timeout", "2s")
    code, line = bad(team, *waited, "--group", team.group)
    assert code == Status.FAILED
    assert "the owners of partitions are not known" in line


@pytest.mark.contract("G8")
@played()
def test_unreadable_holds_topic_does_not_mean_that_nothing_is_held(team):
    """The holds topic was deleted, and the status topic exists."""
    team.broker.delete_topic(team.settings.holds_topic)
    shown = run(team, "status")
    assert re.fullmatch(f"unknown: .*{team.settings.holds_topic}.*\n", shown.stdout)
    found = json.loads(run(team, "status", "-o", "json").stdout)
    assert (found["groups"], len(found["unread"])) == ([], 1)
    for command in (("status",), ("wait", "quiet"), ("wait", "flowing")):
        code, line = bad(team, *command, "--group", "billing")
        assert code == Status.REFUSED, command
        assert "whether it is held is not known" in line
        assert team.settings.holds_topic in line
    looked = run(team, "doctor", "--group", "billing")
    assert "no hold for it" not in looked.stdout
    assert "typing error" not in looked.stdout


# ---------------------------------------------------------------- before the first init


@played()
def test_commands_before_init_fail_immediately_with_one_line(team):
    for name in team.settings.topics:
        team.broker.delete_topic(name)
    for words in (
        ("status",),
        ("status", "--all"),
        ("status", "--group", "nosuch"),
        ("wait", "quiet", "--group", "nosuch"),
        ("wait", "flowing", "--group", "nosuch"),
        ("pause", "orders", "--group", "nosuch", "--reason", "x"),
    ):
        began = team.broker.lab.now
        code, line = bad(team, *words)
        assert code == Status.REFUSED, words
        assert line.count("safeconsumer control init") == 1
        assert team.broker.lab.now - began < 10


@played()
def test_pause_names_a_plain_client_which_does_not_obey_holds(team):
    consumer = team.subscribed("plain", control=None)
    poll_until(consumer, team.has_all(consumer))
    asked = ("pause", "--group", team.group, "--reason", "x")
    with Polled(consumer):
        held = run(team, *asked, f"{team.topic}:0-1")
        document = json.loads(run(team, *asked, f"{team.topic}:2", "-o", "json").stdout)
    assert (held.exit_code, held.stderr) == (Status.DONE, "")
    warned = [line for line in held.stdout.splitlines() if "warning" in line]
    assert warned[0].startswith("warning: plain does not report: a plain client, which")
    assert warned[1:] == [f"warning: {team.topic}:0-1 may go on flowing"]
    assert document["warnings"][1] == f"{team.topic}:2 may go on flowing"


@played()
def test_doctor_names_members_before_init(team):
    """Without the topic no member reports, so none is known to obey."""
    for name in team.settings.topics:
        team.broker.delete_topic(name)
    consumer = team.subscribed("plain", control=None)
    poll_until(consumer, team.has_all(consumer))
    with Polled(consumer):
        ended = run(team, "doctor", "--group", team.group)
    assert ended.exit_code == Status.FAILED
    assert "member plain on" in ended.stdout
    assert "does not report" in ended.stdout


# ---------------------------------------------------------------- costs


@played()
def test_reading_holds_reads_no_reports(team):
    member = team.ready()
    read = set()

    def note(_, message):
        if message.api == "ListOffsets":
            read.update(one.name for one in message.body.topics)

    with Polled(member), Operator(team.broker.client_config, team.settings) as one:
        team.operator_holds("@all")
        team.broker.lab.cluster.on_request = note
        (found,) = one.holds(team.group)
        ends = one.board.ends
        assert (found.key.scope, ends) == (
            "@all",
            {team.settings.holds_topic: 1},
        )
        assert read == {team.settings.holds_topic}
        seen = one.look(team.group)
        assert team.settings.status_topic in read
        assert (seen.reporting, len(seen.holds)) == (1, 1)


@played()
def test_doctor_reads_the_topics_once(team):
    member = team.ready()
    with Polled(member):
        team.operator_holds("@all")
        wait_for(lambda: member.quiet() == set(team.partitions), "the hold")
        asked = team.broker.lab.cluster.requests
        since = len(asked)
        ended = run(team, "doctor", "--group", team.group)
        kinds = Counter(one.api for one in [*asked][since:] if "cli" in one.client_id)
    assert "obeys all holds" in ended.stdout
    assert kinds["ListOffsets"] == 2 + 1


@played()
def test_status_shows_the_lag_of_a_group_and_of_its_held_partitions(team):
    member = team.ready()
    member.commit({tp: OffsetAndMetadata(2, "", -1) for tp in team.partitions})
    for lag, hold in ((None, None), (6, f"{team.topic}:0-1"), (12, "@all")):
        if hold is not None:
            whose = ("--group", team.group, "--reason", "x")
            assert run(team, "pause", hold, *whose).exit_code == 0
        (one,) = json.loads(run(team, "status", "-o", "json").stdout)["groups"]
        assert (one["lag"], one["whole_lag"]) == (lag, 12)


@played()
def test_retention_of_a_topic_with_only_a_size_limit_is_unknown(team):
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


@pytest.mark.contract("G8")
@played()
def test_single_view_shows_that_a_plain_client_delivers(team):
    timed = f"{team.topic}-timed"
    team.create(timed, {"message.timestamp.type": "LogAppendTime"})
    plain = team.member("plain", control=None)
    plain.subscribe([team.topic, timed])
    got = {}
    poll_until(plain, lambda: sum(map(len, got.values())) == 20, got=got)
    plain.commit()
    team.operator_holds("@all")
    team.broker.lab.sleep(15.0)
    produce(team.producer, timed, 2)
    produce(team.producer, team.topic, 2, 0, 0, 0)
    poll_until(plain, lambda: sum(map(len, got.values())) == 24, got=got)
    plain.commit()
    with Polled(plain):
        shown = status(team)
    moved = "its committed offset moved from 0 to 2"
    assert re.search(
        rf"{timed}:0 +held but flowing .* delivers it: {moved}$", shown, re.MULTILINE
    )
    likely = (
        "likely delivers it: its committed offset moved from 5 to 7 since it was held"
    )
    assert re.search(rf"{team.topic}:0 +unknown .* {likely}$", shown, re.MULTILINE)
    assert re.search(rf"{team.topic}:1 +unknown +plain +lag 0$", shown, re.MULTILINE)
    assert "\nheld but flowing: " in shown
