"""G10: ``safeconsumer reset-offsets``, and what other commands say of it."""

import json

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli.errors import Status
from safeconsumer.errors import HoldSettingError
from safeconsumer.group.operator import Operator
from safeconsumer.group.report_wire import (
    STREAM,
    Report,
    encode_report,
    encode_report_key,
)
from safeconsumer.group.reset_to import read_to
from safeconsumer.testing import _codes
from safeconsumer.testing._faults import Fault
from tests.harness.group.team import run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.sim.group.teams import played, work
from tests.sim.group.test_operating import by_alice, leave, pause

pytestmark = pytest.mark.contract("G10")


def reset(team, *arguments):
    return by_alice(team, "reset-offsets", *arguments)


def committed(team):
    """Return what the group has committed, by the number of the partition."""
    with KafkaAdminClient(**team.broker.client_config) as admin:
        (found,) = admin.list_group_offsets([team.group]).values()
    return {tp.partition: one.offset for tp, one in sorted(found.items())}


def resets(team):
    status = run(team, "status", "--group", team.group, "-o", "json")
    return json.loads(status.stdout)["resets"]


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("2", 2),
        ("earliest", 0),
        ("latest", 5),
        ("-3", 2),
        ("2000-01-01", 0),
        ("2999-01-01T00:00", 5),
    ],
)
@played(work)
def test_a_running_group_is_moved(team, to, offset):
    """By an offset, back from what is committed, the log's ends, or a time."""
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    ended = reset(team, team.topic, "--to", to, "--wait", "60s")
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
    change = f"{5 - offset} again" if offset < 5 else "stays"
    assert f"{team.topic}:0  5 -> {offset}   {change}" in ended.stdout
    assert "moved: " in ended.stdout
    assert committed(team) == dict.fromkeys(range(4), offset)
    status = run(team, "status", "--group", team.group).stdout
    assert f"{team.topic}  moved 4 of 4 by operator:alice" in status
    moved = run(team, "wait", "moved", team.topic, "--group", team.group)
    assert moved.exit_code == Status.DONE
    assert by_alice(team, "resume", team.topic).exit_code == Status.DONE
    assert resets(team) == []


@played(work)
def test_the_end_is_before_a_transaction_that_is_open(team):
    """A group that reads no open ones would pass over its records."""
    producer = KafkaProducer(**team.broker.client_config, transactional_id="open")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(team.topic, b"x", partition=0).get(10)
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    ended = reset(team, team.topic, "--to", "latest", "--dry-run", "-o", "json")
    first, *_ = json.loads(ended.stdout)["moves"]
    assert (first["to"], first["end"]) == (5, 6)
    producer.abort_transaction()
    producer.close()


@played(work)
def test_some_partitions_of_a_hold_and_then_others(team):
    """The record has both, and the later one counts where they overlap."""
    assert pause(team, "@all", "--wait", "30s").exit_code == Status.DONE
    assert reset(team, f"{team.topic}:0-1", "--to", "2", "--wait", "60s").exit_code == 0
    assert reset(team, f"{team.topic}:1-2", "--to", "3", "--wait", "60s").exit_code == 0
    assert committed(team) == {0: 2, 1: 3, 2: 3, 3: 5}
    again = reset(team, f"{team.topic}:1-2", "--to", "3", "--wait", "60s")
    assert again.exit_code == Status.DONE


@played(work)
def test_a_dry_run_changes_nothing(team):
    assert pause(team, team.topic, "--for", "2h").exit_code == Status.DONE
    ended = reset(team, team.topic, "--to", "earliest", "--dry-run")
    assert ended.exit_code == Status.DONE
    assert f"{team.topic}:3  5 -> 0   5 again" in ended.stdout
    assert "that is taken away, and it stays until resumed" in ended.stdout
    assert ended.stdout.endswith("nothing was changed\n")
    document = json.loads(
        reset(team, team.topic, "--to", "1", "--dry-run", "-o", "json").stdout
    )
    assert document["moves"][0] == {
        "partition": f"{team.topic}:0",
        "from": 5,
        "to": 1,
        "start": 0,
        "end": 5,
    }
    assert (committed(team)[0], resets(team)) == (5, [])


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("6", "has offsets 0 to 5: not 6"),
        ("-6", "has offsets 0 to 5: not -1"),
    ],
)
@played(work)
def test_a_target_outside_of_the_log_is_refused(team, to, said):
    """Beyond the end it would be out of range, and everything be read again."""
    assert pause(team, team.topic).exit_code == Status.DONE
    ended = reset(team, team.topic, "--to", to)
    assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
    assert said in ended.stderr
    assert resets(team) == []


@played(work)
def test_without_a_hold_of_its_owner_it_is_refused(team):
    assert pause(team, f"{team.topic}:0-2").exit_code == Status.DONE
    for owner, left in (("alice", ":3"), ("bob", ":0-3")):
        ended = run(
            team,
            *("reset-offsets", team.topic, "--to", "1"),
            *("--group", team.group, "--owner", owner),
        )
        assert ended.exit_code == Status.FAILED
        assert f"{team.topic}{left} is not held by {owner}: pause it" in ended.stderr
    assert resets(team) == []


@played(work)
def test_another_owner_who_has_not_finished_is_waited_for(team):
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    team.broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=10**6)
    assert reset(team, team.topic, "--to", "1").exit_code == Status.DONE
    bob = ("--group", team.group, "--owner", "bob")
    run(team, "pause", "--reason", "x", f"{team.topic}:0", *bob)
    ended = run(team, "reset-offsets", f"{team.topic}:0", "--to", "2", *bob)
    assert ended.exit_code == Status.FAILED
    assert f"{team.topic}:0 is still moved by operator:alice" in ended.stderr
    team.broker.clear_faults()
    waited = run(team, "wait", "moved", "--group", team.group)
    assert waited.exit_code == Status.DONE
    ended = run(team, "reset-offsets", f"{team.topic}:0", "--to", "2", *bob)
    assert ended.exit_code == Status.DONE


@played(work)
def test_resume_waits_until_it_is_done_unless_forced(team):
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    team.broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=10**6)
    assert reset(team, team.topic, "--to", "1").exit_code == Status.DONE
    waited = run(team, "wait", "moved", "--group", team.group, "--timeout", "1s")
    assert waited.exit_code == Status.FAILED
    assert f"{team.topic}:0 to be moved to 1: " in waited.stderr
    assert "to be moved to 1" in run(team, "status", "--group", team.group).stdout
    ended = by_alice(team, "resume", team.topic)
    assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
    assert f"{team.topic}:0-3 are not moved yet: " in ended.stderr
    assert by_alice(team, "resume", team.topic, "--force").exit_code == Status.DONE
    team.broker.clear_faults()


class OfTimes(Fault):
    """Refuses to look up offsets by time."""

    def takes(self, connection, message):
        if message.api != "ListOffsets":
            return False
        (first, *_) = (one for topic in message.body.topics for one in topic.partitions)
        return first.timestamp >= 0 and super().takes(connection, message)


@played(work)
def test_a_time_that_no_leader_looks_up_is_no_target(team):
    """The end of the log was taken for it: the group passed over all that waits."""
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    error = _codes.error_code("KAFKA_STORAGE_ERROR")
    OfTimes(api="ListOffsets", error=error).begin(team.broker.lab.cluster)
    ended = reset(team, team.topic, "--to", "2000-01-01")
    assert (ended.exit_code, ended.stdout) == (Status.UNREACHABLE, "")
    assert resets(team) == []


@played(leave)
def test_who_may_not_commit_for_an_empty_group_is_told(team):
    """It was said that running the command again does it at once."""
    assert pause(team, team.topic).exit_code == Status.DONE
    team.broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=10)
    ended = reset(team, team.topic, "--to", "3", "--wait", "30s")
    assert ended.exit_code == Status.REFUSED
    assert f"{team.topic}:0 of {team.group}: no right to commit it" in ended.stderr
    assert ended.stderr.count("safeconsumer control acls") == 1


@played(leave)
def test_of_a_group_without_members_the_command_moves_it_itself(team):
    assert pause(team, team.topic).exit_code == Status.DONE
    ended = reset(team, team.topic, "--to", "3", "--wait", "30s")
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
    assert committed(team) == dict.fromkeys(range(4), 3)
    assert by_alice(team, "resume", team.topic).exit_code == Status.DONE
    consumer = team.subscribed("late")
    got = team.settled(consumer)
    poll_until(consumer, lambda: sum(map(len, got.values())) == 8, got=got)


@played(leave)
def test_of_a_group_that_only_a_stream_obeys_the_command_moves_it_itself(team):
    """The stream goes on where its checkpoint is."""
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
    assert pause(team, team.topic).exit_code == Status.DONE
    ended = reset(team, team.topic, "--to", "3", "--wait", "30s")
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
    assert committed(team) == dict.fromkeys(range(4), 3)
    looked = reset(team, team.topic, "--to", "2", "--dry-run").stdout
    assert "stream is a stream: its offsets do not move" in looked


@played()
def test_partitions_assigned_by_hand_are_moved_by_who_reads_them(team):
    """Kafka has nobody in its list, and the command leaves it to the one that reports."""
    consumer = team.member("by-hand")
    consumer.assign(team.partitions)
    poll_until(consumer, lambda: team.is_ungated(consumer))
    consumer.commit({tp: OffsetAndMetadata(5, "", -1) for tp in team.partitions})
    with Polled(consumer):
        assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
        ended = reset(team, team.topic, "--to", "2", "--wait", "30s")
        assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
        assert [consumer.position(tp) for tp in team.partitions] == [2] * 4


@pytest.mark.parametrize("kind", ["plain", "refusing"])
@played()
def test_owners_that_move_nothing_are_named_and_need_force(team, kind):
    """A plain client, and one whose settings forbid it."""
    settings = {"plain": None, "refusing": team.settings}[kind]
    if settings is not None:
        settings = type(settings).prefixed(team.prefix, resets=False)
    consumer = team.subscribed("old", control=settings)
    poll_until(consumer, team.has_all(consumer))
    consumer.commit()
    with Polled(consumer):
        assert pause(team, team.topic).exit_code == Status.DONE
        ended = reset(team, team.topic, "--to", "2")
        assert ended.exit_code == Status.FAILED
        assert f"{team.topic}:0-3 would not be moved: old" in ended.stderr
        assert reset(team, team.topic, "--to", "2", "--force").exit_code == Status.DONE
        left = resets(team)
        assert [one["is_moved"] for one in left] == [False] * 4
        assert all("old" in one["why"] for one in left)


@played(work)
def test_its_hold_is_not_replaced_meanwhile(team):
    """A reset whose hold is gone is never done."""
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    assert reset(team, team.topic, "--to", "1", "--wait", "30s").exit_code == 0
    with (
        Operator(team.broker.client_config, team.settings) as operator,
        pytest.raises(HoldSettingError, match="resume it first"),
    ):
        operator.pause(team.group, team.topic, owner="alice", for_=5)
    ended = pause(team, team.topic, "--for", "2h", "--replace")
    assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
    assert f"the group is being moved under it: {team.topic}" in ended.stderr
    assert pause(team, team.topic).exit_code == Status.DONE
    extended = by_alice(team, "extend", team.topic, "--for", "2h")
    assert "is held until it is resumed" in extended.stderr
    assert len(resets(team)) == 4


@pytest.mark.parametrize("text", ["", "soon", "1.5", "--1", "2026-13-01", "1_000"])
def test_what_is_no_place_to_go_is_refused(text):
    with pytest.raises(HoldSettingError, match="write earliest, latest, an offset"):
        read_to(text)


def test_a_time_is_utc_unless_it_says_otherwise():
    there = read_to("2026-11-27T10:00+01:00").at_ms
    assert read_to("2026-11-27T10:00").at_ms - there == 3_600_000
