"""G10: ``safeconsumer reset-offsets``, and what other commands say of it."""

import errno
import json
import os
import re

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
from tests.sim.group.teams import played, work
from tests.sim.group.test_operating import by_alice, leave, pause

pytestmark = pytest.mark.contract("G10")


def reset(team, *arguments):
    return by_alice(team, "reset-offsets", *arguments)


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
    assert team.committed() == dict.fromkeys(range(4), offset)
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
    assert team.committed() == {0: 2, 1: 3, 2: 3, 3: 5}
    again = reset(team, f"{team.topic}:1-2", "--to", "3", "--wait", "60s")
    assert again.exit_code == Status.DONE


@played(work)
def test_so_many_offsets_back_asked_for_twice_are_moved_once(team):
    """Whoever runs it again, as the first wait was too short, means the same place."""
    assert pause(team, "@all", "--wait", "30s").exit_code == Status.DONE
    for _ in range(2):
        ended = reset(team, f"{team.topic}:0-1", "--to", "-2", "--wait", "60s")
        assert ended.exit_code == Status.DONE
    assert f"{team.topic}:0  3 -> 3   stays" in ended.stdout
    more = reset(team, f"{team.topic}:1-2", "--to", "-2", "--wait", "60s")
    assert more.exit_code == Status.DONE
    assert team.committed() == {0: 3, 1: 3, 2: 3, 3: 5}


@played(work)
def test_so_many_offsets_back_count_from_where_something_else_was_asked_for(team):
    assert pause(team, "@all", "--wait", "30s").exit_code == Status.DONE
    for number, to in ((0, "4"), (1, "-2"), (0, "-2")):
        ended = reset(team, f"{team.topic}:{number}", "--to", to, "--wait", "60s")
        assert ended.exit_code == Status.DONE
    assert team.committed() == {0: 2, 1: 3, 2: 5, 3: 5}


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
    assert (team.committed()[0], resets(team)) == (5, [])


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("6", "have offsets 0 to 5: not 6"),
        ("-6", "have offsets 0 to 5: not -1"),
    ],
)
@played(work)
def test_a_target_outside_of_the_log_is_refused(team, to, said):
    """Beyond the end it would be out of range, and everything be read again."""
    assert pause(team, team.topic).exit_code == Status.DONE
    ended = reset(team, team.topic, "--to", to)
    assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
    assert said in ended.stderr
    shown = reset(team, team.topic, "--to", to, "--dry-run").stdout
    assert re.search(r":0  5 -> -?\d   outside of the log\n", shown), shown
    assert resets(team) == []


@pytest.mark.parametrize("typo", ["x{}", "{}:7"])
@played(work)
def test_a_scope_that_covers_nothing_is_refused_as_by_other_commands(team, typo):
    """Beside one that covers something it was left out without a word."""
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    wrong = typo.format(team.topic)
    for scopes in ([wrong], [f"{team.topic}:0", wrong]):
        ended = reset(team, *scopes, "--to", "1")
        assert ended.exit_code == Status.USAGE
        assert f"{wrong} covers nothing that {team.group} consumes" in ended.stderr
        assert team.topic in ended.stderr.partition("consumes")[2]
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


@played(work)
def test_resume_is_refused_if_a_reset_is_asked_for_while_it_looks(team, monkeypatch):
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    team.broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=10**6)
    looking = Operator.look

    def late(self, group, **options):
        seen = looking(self, group, **options)
        monkeypatch.setattr(Operator, "look", looking)
        assert reset(team, team.topic, "--to", "1").exit_code == Status.DONE
        return seen

    monkeypatch.setattr(Operator, "look", late)
    ended = by_alice(team, "resume", team.topic)
    assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
    assert f"{team.topic}:0-3 are not moved yet: " in ended.stderr
    assert past(team)[-1]["is_held"]
    team.broker.clear_faults()


@played(work)
def test_a_program_lifts_no_undone_reset_unless_forced(team):
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    team.broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=10**6)
    assert reset(team, team.topic, "--to", "1").exit_code == Status.DONE
    with Operator(team.broker.client_config, team.settings) as operator:
        with pytest.raises(HoldSettingError, match=":0-3 are not moved yet: "):
            operator.resume(team.group, team.topic, owner="alice")
        assert past(team)[-1]["is_held"]
        operator.resume(team.group, team.topic, owner="alice", force=True)
    assert not past(team)[-1]["is_held"]
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
    OfTimes(api="ListOffsets", error=error).begin(team.broker.lab.cluster.faults)
    ended = reset(team, team.topic, "--to", "2000-01-01")
    assert (ended.exit_code, ended.stdout) == (Status.UNREACHABLE, "")
    assert resets(team) == []


class Producing(Fault):
    """Appends records to the team's topic whenever offsets of a log are asked for."""

    cluster = topic = None

    def takes(self, connection, message):
        if super().takes(connection, message):
            for number in range(4):
                self.cluster.append(self.topic, number, [b"x"])
        return False


@pytest.mark.parametrize("to", ["latest", "2999-01-01"])
@played(work)
def test_the_end_of_a_log_that_grows_is_no_target_outside_of_it(team, to):
    """It was refused, since the end was asked for before the target."""
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE
    producing = Producing(api="ListOffsets")
    producing.cluster, producing.topic = team.broker.lab.cluster, team.topic
    producing.begin(team.broker.lab.cluster.faults)
    ended = reset(team, team.topic, "--to", to)
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
    assert min(one["offset"] for one in resets(team)) > 5


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
def test_what_was_asked_for_is_said_though_it_cannot_be_printed(team, monkeypatch):
    """It was said that no outcome is known; and nobody moved what the command is to move."""
    assert pause(team, team.topic).exit_code == Status.DONE

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Output, "lines", full)
        ended = reset(team, team.topic, "--to", "3")
    line = f"asked for and acknowledged: {team.topic}; but the rest is not shown: "
    assert ended.exit_code == Status.FAILED
    assert ended.stderr.startswith(f"safeconsumer: {line}")
    assert team.committed() == dict.fromkeys(range(4), 3)


@played(work)
def test_what_was_asked_for_is_said_though_the_wait_is_interrupted(team, monkeypatch):
    assert pause(team, team.topic, "--wait", "30s").exit_code == Status.DONE

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "wait_until", interrupted)
    ended = reset(team, team.topic, "--to", "3", "--wait", "30s")
    line = f"asked for and acknowledged: {team.topic}; interrupted after that\n"
    assert ended.exit_code == Status.INTERRUPTED
    assert ended.stderr == f"safeconsumer: {line}"


@played(leave)
def test_commands_name_a_thing_alike_in_json_and_say_what_was_done_already(team):
    """Dry runs, `pause` and `resume` had three names for other holds, `extend` none."""
    assert pause(team, team.topic).exit_code == Status.DONE
    for was_done in (False, True):
        ended = reset(team, team.topic, "--to", "3", "-o", "json")
        told = json.loads(ended.stdout)
        assert (told["is_done_already"], len(told["moves"])) == (was_done, 4)
    bob = ("@all", "--group", team.group, "--owner", "bob", "-o", "json")
    for command in (
        ("pause", "--reason", "y", "--for", "1h"),
        ("extend", "--for", "2h"),
        ("resume",),
    ):
        dry = json.loads(run(team, *command, *bob, "--dry-run").stdout)
        done = json.loads(run(team, *command, *bob).stdout)
        for told in (dry, done):
            assert [one["owner"] for one in told["also_held"]] == ["alice"]
        assert ("replaced" in dry) is ("replaced" in done)
        assert done["is_done_already"] is False


@played(leave)
def test_of_a_group_without_members_the_command_moves_it_itself(team):
    assert pause(team, team.topic).exit_code == Status.DONE
    ended = reset(team, team.topic, "--to", "3", "--wait", "30s")
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
    assert team.committed() == dict.fromkeys(range(4), 3)
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
    assert team.committed() == dict.fromkeys(range(4), 3)
    looked = reset(team, team.topic, "--to", "2", "--dry-run").stdout
    for said in (ended.stdout, looked):
        assert "stream is a stream: its offsets do not move" in said


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
    team.broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=10**6)
    assert reset(team, team.topic, "--to", "1").exit_code == 0
    with (
        Operator(team.broker.client_config, team.settings) as operator,
        pytest.raises(HoldSettingError, match="resume it first"),
    ):
        operator.pause(team.group, team.topic, owner="alice", for_=5)
    for agreed in ((), ("--replace",)):
        ended = pause(team, team.topic, "--for", "2h", *agreed)
        assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
        said = (
            f"the group is being moved under it: {team.topic}: wait until it is moved"
        )
        assert said in ended.stderr
    assert pause(team, team.topic).exit_code == Status.DONE
    assert len(resets(team)) == 4
    team.broker.clear_faults()


@played(work)
def test_its_hold_gets_an_end_again_once_all_is_moved(team):
    """Each refusal named a way that was refused, too."""
    assert pause(team, team.topic, "--for", "1h", "--wait", "30s").exit_code == 0
    assert reset(team, team.topic, "--to", "1", "--wait", "30s").exit_code == 0
    extended = by_alice(team, "extend", team.topic, "--for", "2h")
    assert "it has no end: replace it to give it one" in extended.stderr
    again = pause(team, team.topic, "--for", "2h")
    assert "extend makes one that ends last longer, --replace" in again.stderr
    replaced = pause(team, team.topic, "--for", "2h", "--replace")
    assert replaced.exit_code == Status.DONE
    assert (resets(team), team.committed()) == ([], dict.fromkeys(range(4), 1))


@played(work)
def test_nothing_that_is_to_be_moved_is_not_waited_for(team, monkeypatch):
    """All the time was waited, though nothing could come of it."""
    looks, looking = [], Operator.look

    def counted(self, group, **options):
        looks.append(group)
        return looking(self, group, **options)

    monkeypatch.setattr(Operator, "look", counted)
    ended = run(team, "wait", "moved", "--group", team.group, "--timeout", "5s")
    assert (ended.exit_code, len(looks)) == (Status.FAILED, 1)
    assert "nothing of it is being moved: no reset stands" in ended.stderr


@pytest.mark.parametrize("text", ["", "soon", "1.5", "--1", "2026-13-01", "1_000"])
def test_what_is_no_place_to_go_is_refused(text):
    with pytest.raises(HoldSettingError, match="write earliest, latest, an offset"):
        parse_target(text)


def test_a_duration_is_a_time_that_long_ago(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    assert parse_target("2h").at_ms == 2_800_000
    assert parse_target("1h30m").at_ms == 4_600_000


def test_a_time_is_utc_unless_it_says_otherwise():
    there = parse_target("2026-11-27T10:00+01:00").at_ms
    assert parse_target("2026-11-27T10:00").at_ms - there == 3_600_000
