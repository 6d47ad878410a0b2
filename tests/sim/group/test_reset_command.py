"""G10: ``safeconsumer reset-offsets``, and how other commands show a reset."""

import errno
import os

import pytest
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli import waiting
from safeconsumer.cli.errors import Status
from safeconsumer.cli.output import Output
from safeconsumer.errors import HoldSettingError
from safeconsumer.group.operator import Operator
from safeconsumer.group.report_wire import (
    STREAM,
    Report,
    encode_report,
    encode_report_key,
)
from safeconsumer.group.reset_to import parse_target
from safeconsumer.testing import _codes
from safeconsumer.testing._faults import Fault
from tests.harness.group.team import past, run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.sim.group.teams import document, held, leave, pause, played, typed, work

pytestmark = pytest.mark.contract("G10")

FAILED = Status.FAILED


def reset(team, *arguments, **more):
    return typed(team, "reset-offsets", *arguments, **more)


def move(team, scope, to):
    """Run ``reset-offsets`` until everything is moved."""
    return reset(team, scope, "--to", to, "--wait", "60s")


def resets(team):
    return document(team, "status")["resets"]


def refuse_commits(team):
    team.broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=10**6)


@played(held)
def test_running_group_is_moved_to_each_kind_of_target(team):
    for to, line in (
        ("2", "5 -> 2   3 again"),
        ("earliest", "2 -> 0   2 again"),
        ("2999-01-01T00:00", "0 -> 5   5 passed over"),
        ("-3", "5 -> 2   3 again"),
        ("2000-01-01", "2 -> 0   2 again"),
        ("latest", "0 -> 5   5 passed over"),
        ("5", "5 -> 5   stays"),
    ):
        printed = move(team, team.topic, to)
        assert f"{team.topic}:0  {line}" in printed, to
        assert "moved: " in printed
        assert set(team.committed().values()) == {int(line.split()[2])}, to
    moved = f"{team.topic}  moved 4 of 4 by operator:alice"
    assert moved in typed(team, "status")
    typed(team, "wait", "moved", team.topic)
    typed(team, "resume", team.topic)
    assert resets(team) == []


@played(held)
def test_latest_means_the_offset_before_an_open_transaction(team):
    """A group that reads committed records would otherwise skip the transaction's records."""
    producer = KafkaProducer(**team.broker.client_config, transactional_id="open")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(team.topic, b"x", partition=0).get(10)
    asked = ("reset-offsets", team.topic, "--to", "latest", "--dry-run")
    first, *_ = document(team, *asked)["moves"]
    assert (first["to"], first["end"]) == (5, 6)
    producer.abort_transaction()
    producer.close()


@pytest.mark.parametrize(
    ("several", "committed"),
    [
        pytest.param(
            [("0-1", "2"), ("1-2", "3"), ("1-2", "3")],
            {0: 2, 1: 3, 2: 3, 3: 5},
            id="the later offset counts",
        ),
        pytest.param(
            [("0-1", "-2"), ("0-1", "-2"), ("1-2", "-2")],
            {0: 3, 1: 3, 2: 3, 3: 5},
            id="repeated relative target counts once",
        ),
        pytest.param(
            [("0-1", "-2"), ("2", "4"), ("0-1", "-2")],
            {0: 3, 1: 3, 2: 4, 3: 5},
            id="repeated relative target around another one",
        ),
        pytest.param(
            [("0", "4"), ("1", "-2"), ("0", "-2")],
            {0: 2, 1: 3, 2: 5, 3: 5},
            id="relative target after an absolute one",
        ),
    ],
)
@played(held)
def test_group_gets_the_offsets_of_several_resets_of_one_hold(team, several, committed):
    for numbers, to in several:
        move(team, f"{team.topic}:{numbers}", to)
    assert team.committed() == committed


def recreate(team):
    """Delete the topic and create it again, with ten unread records."""
    lab = team.broker.lab
    lab.cluster.delete_topic(team.topic)
    lab.cluster.create_topic(team.topic, 4, {})
    team.produce(10)
    lab.sleep(30)
    assert team.committed() == {}


@played(held)
def test_later_reset_does_not_repeat_a_target_of_the_deleted_topic(team):
    move(team, f"{team.topic}:0", "4")
    recreate(team)
    move(team, f"{team.topic}:1", "2")
    team.broker.lab.sleep(10)
    assert team.committed() == {1: 2}


@played(held)
def test_relative_target_in_a_recreated_topic_is_refused(team):
    move(team, f"{team.topic}:0", "-1")
    recreate(team)
    refused = reset(team, f"{team.topic}:0", "--to", "-1", status=FAILED)
    assert "nothing is committed for" in refused


@played(work)
def test_dry_run_changes_nothing(team):
    pause(team, team.topic, "--for", "2h")
    printed = reset(team, team.topic, "--to", "earliest", "--dry-run")
    assert f"{team.topic}:3  5 -> 0   5 again" in printed
    assert "this end is removed, and the hold stays until resumed" in printed
    assert printed.endswith("nothing was changed\n")
    asked = ("reset-offsets", team.topic, "--to", "1", "--dry-run")
    assert document(team, *asked)["moves"][0] == {
        "partition": f"{team.topic}:0",
        "from": 5,
        "to": 1,
        "start": 0,
        "end": 5,
    }
    assert (team.committed()[0], resets(team)) == (5, [])


# ---------------------------------------------------------------- refusals


@played(work)
def test_target_outside_of_the_log_is_refused(team):
    """A position beyond the end would be out of range, and all records would be repeated."""
    pause(team, team.topic)
    for to, place in (("6", 6), ("-6", -1)):
        asked = (team.topic, "--to", to)
        why = f"have offsets 0 to 5, so they cannot move to {place}"
        assert why in reset(team, *asked, status=FAILED)
        whose = ("--group", team.group, "--owner", "alice")
        shown = run(team, "reset-offsets", *asked, "--dry-run", *whose).stdout
        assert f":0  5 -> {place}   outside the log\n" in shown
    assert resets(team) == []


@played(held)
def test_scope_that_covers_nothing_is_refused(team):
    """The scope is refused even if another given scope covers partitions."""
    for wrong in (f"x{team.topic}", f"{team.topic}:7"):
        for scopes in ([wrong], [f"{team.topic}:0", wrong]):
            why = reset(team, *scopes, "--to", "1", status=Status.USAGE)
            assert f"{wrong} covers nothing that {team.group} consumes" in why
            assert team.topic in why.partition("consumes")[2]
    assert resets(team) == []


@played(work)
def test_reset_without_a_hold_of_its_owner_is_refused(team):
    pause(team, f"{team.topic}:0-2")
    for owner, left in (("alice", ":3"), ("bob", ":0-3")):
        why = reset(team, team.topic, "--to", "1", owner=owner, status=FAILED)
        assert f"{team.topic}{left} is not held by {owner}: pause it" in why
    assert resets(team) == []


@played(held)
def test_reset_waits_for_the_unfinished_reset_of_another_owner(team):
    refuse_commits(team)
    reset(team, team.topic, "--to", "1")
    scope = f"{team.topic}:0"
    pause(team, scope, owner="bob")
    why = reset(team, scope, "--to", "2", owner="bob", status=FAILED)
    assert f"{scope} is still moved by operator:alice" in why
    team.broker.clear_faults()
    typed(team, "wait", "moved")
    reset(team, scope, "--to", "2", owner="bob")


@played(held)
def test_resume_of_an_unfinished_reset_is_refused_unless_forced(team):
    refuse_commits(team)
    reset(team, team.topic, "--to", "1")
    waited = typed(team, "wait", "moved", "--timeout", "1s", status=FAILED)
    assert f"{team.topic}:0 to be moved to 1: " in waited
    assert "to be moved to 1" in typed(team, "status")
    why = typed(team, "resume", team.topic, status=FAILED)
    assert f"{team.topic}:0-3 are not moved yet: " in why
    with Operator(team.broker.client_config, team.settings) as operator:
        with pytest.raises(HoldSettingError, match=":0-3 are not moved yet: "):
            operator.resume(team.group, team.topic, owner="alice")
        with pytest.raises(HoldSettingError, match="resume it first"):
            operator.pause(team.group, team.topic, owner="alice", for_=5)
        assert past(team)[-1]["is_held"]
        operator.resume(team.group, team.topic, owner="alice", force=True)
    assert not past(team)[-1]["is_held"]
    typed(team, "resume", team.topic, "--force")
    team.broker.clear_faults()


@played(held)
def test_resume_is_refused_if_a_reset_comes_between_its_read_and_its_write(
    team, monkeypatch
):
    refuse_commits(team)
    looking = Operator.look

    def late(self, group, **options):
        seen = looking(self, group, **options)
        monkeypatch.setattr(Operator, "look", looking)
        reset(team, team.topic, "--to", "1")
        return seen

    monkeypatch.setattr(Operator, "look", late)
    why = typed(team, "resume", team.topic, status=FAILED)
    assert f"{team.topic}:0-3 are not moved yet: " in why
    assert past(team)[-1]["is_held"]
    team.broker.clear_faults()


class OfTimes(Fault):
    """A fault for requests that look up offsets by time."""

    def takes(self, connection, message):
        if message.api != "ListOffsets":
            return False
        (first, *_) = (one for topic in message.body.topics for one in topic.partitions)
        return first.timestamp >= 0 and super().takes(connection, message)


@played(held)
def test_reset_to_a_time_fails_if_no_leader_can_look_up_its_offset(team):
    """A move to the end of the log would skip all waiting records."""
    error = _codes.error_code("KAFKA_STORAGE_ERROR")
    OfTimes(api="ListOffsets", error=error).begin(team.broker.lab.cluster.faults)
    reset(team, team.topic, "--to", "2000-01-01", status=Status.UNREACHABLE)
    assert resets(team) == []


class Producing(Fault):
    """Appends records to the team's topic for each request about offsets."""

    cluster = topic = None

    def takes(self, connection, message):
        if super().takes(connection, message):
            for number in range(4):
                self.cluster.append(self.topic, number, [b"x"])
        return False


@played(held)
def test_end_of_a_growing_log_is_a_valid_target(team):
    producing = Producing(api="ListOffsets")
    producing.cluster, producing.topic = team.broker.lab.cluster, team.topic
    producing.begin(team.broker.lab.cluster.faults)
    least = 5
    for to in ("latest", "2999-01-01"):
        reset(team, team.topic, "--to", to)
        offset = min(one["offset"] for one in resets(team))
        assert offset > least, to
        least = offset


@pytest.mark.parametrize("kind", ["plain", "refusing"])
@played()
def test_owners_that_ignore_resets_are_named_and_require_force(team, kind):
    """These owners are a plain client, and a member whose settings forbid resets."""
    settings = {"plain": None, "refusing": team.settings}[kind]
    if settings is not None:
        settings = type(settings).prefixed(team.prefix, resets=False)
    consumer = team.subscribed("old", control=settings)
    poll_until(consumer, team.has_all(consumer))
    consumer.commit()
    with Polled(consumer):
        pause(team, team.topic)
        why = reset(team, team.topic, "--to", "2", status=FAILED)
        assert f"{team.topic}:0-3 would not be moved: old" in why
        reset(team, team.topic, "--to", "2", "--force")
        left = resets(team)
        assert [one["is_moved"] for one in left] == [False] * 4
        assert all("old" in one["why"] for one in left)


# ---------------------------------------------------------------- the hold


@played(held)
def test_hold_of_an_unfinished_reset_is_not_replaced(team):
    refuse_commits(team)
    reset(team, team.topic, "--to", "1")
    why = f"the group is being moved under it: {team.topic}: wait until it is moved"
    for agreed in ((), ("--replace",)):
        assert why in pause(team, team.topic, "--for", "2h", *agreed, status=FAILED)
    pause(team, team.topic)
    assert len(resets(team)) == 4
    team.broker.clear_faults()


@played(held)
def test_hold_may_expire_again_once_everything_is_moved(team):
    move(team, team.topic, "1")
    why = typed(team, "extend", team.topic, "--for", "2h", status=FAILED)
    assert "it has no end: replace it to give it one" in why
    why = pause(team, team.topic, "--for", "2h", status=FAILED)
    assert "use extend to lengthen a hold that has an end, --replace" in why
    pause(team, team.topic, "--for", "2h", "--replace")
    assert (resets(team), team.committed()) == ([], dict.fromkeys(range(4), 1))


@played(work)
def test_wait_moved_fails_immediately_without_a_reset(team, monkeypatch):
    looks, looking = [], Operator.look

    def counted(self, group, **options):
        looks.append(group)
        return looking(self, group, **options)

    monkeypatch.setattr(Operator, "look", counted)
    why = typed(team, "wait", "moved", "--timeout", "5s", status=FAILED)
    assert "no reset is in force for these partitions" in why
    assert len(looks) == 1


# ---------------------------------------------------------------- groups without members


@played(leave)
def test_command_moves_a_group_without_members(team):
    """A stream does not count as a member, and continues from its own checkpoint."""
    pause(team, team.topic)
    move(team, team.topic, "3")
    assert team.committed() == dict.fromkeys(range(4), 3)
    stream = Report(
        group=team.group,
        member="stream-1",
        client_id="stream",
        kind=STREAM,
        applied={team.settings.holds_topic: 0},
        assigned={team.topic: ((0, 3),)},
        quiet={},
    )
    key = encode_report_key(team.group, stream.member)
    team.write_raw(team.settings.status_topic, key, encode_report(stream)).get(10)
    seen = reset(team, team.topic, "--to", "4", "--dry-run")
    for printed in (seen, move(team, team.topic, "4")):
        assert "stream is a stream: its offsets do not move" in printed
    assert team.committed() == dict.fromkeys(range(4), 4)
    typed(team, "resume", team.topic)
    consumer = team.subscribed("late")
    got = team.settled(consumer)
    poll_until(consumer, lambda: sum(map(len, got.values())) == 4, got=got)


@played(leave)
def test_user_without_permission_to_commit_for_an_empty_group_is_refused(team):
    pause(team, team.topic)
    team.broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=10)
    whose = ("--group", team.group, "--owner", "alice")
    ended = run(team, "reset-offsets", team.topic, "--to", "3", *whose)
    assert ended.exit_code == Status.REFUSED
    assert f"{team.topic}:0 of {team.group}: no right to commit it" in ended.stderr
    assert ended.stderr.count("safeconsumer control acls") == 1


@played()
def test_manually_assigned_partitions_are_moved_by_their_reader(team):
    """Kafka lists no members, but the command lets the reader move its partitions."""
    consumer = team.member("by-hand")
    consumer.assign(team.partitions)
    poll_until(consumer, lambda: team.is_ungated(consumer))
    consumer.commit({tp: OffsetAndMetadata(5, "", -1) for tp in team.partitions})
    with Polled(consumer):
        pause(team, team.topic, "--wait", "30s")
        move(team, team.topic, "2")
        assert [consumer.position(tp) for tp in team.partitions] == [2] * 4


# ---------------------------------------------------------------- output


@played(leave)
def test_acknowledged_reset_is_reported_on_a_full_disk(team, monkeypatch):
    """The command still moves the group without members."""
    pause(team, team.topic)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Output, "lines", full)
        printed = reset(team, team.topic, "--to", "3", status=FAILED)
    line = f"requested and acknowledged: {team.topic}; but the rest is not shown: "
    assert printed.startswith(f"safeconsumer: {line}")
    assert team.committed() == dict.fromkeys(range(4), 3)


@played(held)
def test_acknowledged_reset_is_reported_after_an_interrupt(team, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "wait_until", interrupted)
    asked = (team.topic, "--to", "3", "--wait", "30s")
    line = f"requested and acknowledged: {team.topic}; interrupted after that\n"
    ended = run(
        team, "reset-offsets", *asked, "--group", team.group, "--owner", "alice"
    )
    assert ended.exit_code == Status.INTERRUPTED
    assert ended.stderr == f"safeconsumer: {line}"


@played(leave)
def test_commands_use_the_same_names_in_json(team):
    pause(team, team.topic)
    for was_done in (False, True):
        found = document(team, "reset-offsets", team.topic, "--to", "3")
        assert (found["is_done_already"], len(found["moves"])) == (was_done, 4)
    for command in (
        ("pause", "--reason", "y", "--for", "1h"),
        ("extend", "--for", "2h"),
        ("resume",),
    ):
        dry = document(team, *command, "@all", "--dry-run", owner="bob")
        done = document(team, *command, "@all", owner="bob")
        for found in (dry, done):
            assert [one["owner"] for one in found["also_held"]] == ["alice"]
        assert ("replaced" in dry) is ("replaced" in done)
        assert done["is_done_already"] is False


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize("text", ["", "soon", "1.5", "--1", "2026-13-01", "1_000"])
def test_text_that_is_not_a_target_is_refused(text):
    with pytest.raises(HoldSettingError, match="write earliest, latest, an offset"):
        parse_target(text)


def test_duration_counts_back_from_now_and_a_time_is_in_utc(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    assert parse_target("2h").at_ms == 2_800_000
    assert parse_target("1h30m").at_ms == 4_600_000
    there = parse_target("2026-11-27T10:00+01:00").at_ms
    assert parse_target("2026-11-27T10:00").at_ms - there == 3_600_000
