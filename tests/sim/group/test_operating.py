"""What operators type that is not quite right, and what they want to know first."""

import json
import re
import signal
from contextlib import contextmanager
from functools import partial

import pytest
from click.testing import CliRunner
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from safeconsumer import Control
from safeconsumer.audit.control import from_history
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.control_topics import read_control
from safeconsumer.cli.errors import Status
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.operator import Operator
from tests.harness.group.team import past, run, where
from tests.harness.polling import poll_until
from tests.harness.producing import produce
from tests.sim.group.teams import played, work


def by_alice(team, command, *arguments):
    return run(team, command, "--group", team.group, "--owner", "alice", *arguments)


def by(team, owner):
    return ("--group", team.group, "--owner", owner)


def pause(team, *arguments):
    return by_alice(team, "pause", "--reason", "x", *arguments)


def held(team):
    """Tell what stands on the topics, as scope and owner."""
    last = {(one["scope"], one["owner"]): one["is_held"] for one in past(team)}
    return [key for key, is_held in last.items() if is_held]


@contextmanager
def leave(team):
    """Let the group have committed, and nobody be in it, who could report."""
    consumer = team.subscribed("gone", control=None)
    poll_until(consumer, team.has_all(consumer))
    consumer.commit({tp: OffsetAndMetadata(0, "", -1) for tp in team.partitions})
    consumer.close(autocommit=False)
    yield


@pytest.mark.parametrize("command", ["pause", "wait", "resume"])
@played(work)
def test_what_covers_nothing_is_refused(team, command):
    arguments = {
        "pause": ("pause", "--reason", "x"),
        "wait": ("wait", "quiet"),
        "resume": ("resume",),
    }[command]
    for scope, said in (
        (f"{team.topic}x", f"did you mean {team.topic}?"),
        (f"{team.topic}:9", f"it has {team.topic}:0-3"),
        ("all", "everything is @all"),
        ("re:none.*", f"it consumes {team.topic}"),
        (team.settings.holds_topic, "though there is such a topic"),
    ):
        ended = run(team, *arguments, scope, "--group", team.group)
        assert (ended.exit_code, ended.stdout) == (Status.USAGE, "")
        assert ended.stderr.count("\n") == 1
        assert f"{scope} covers nothing that {team.group} consumes" in ended.stderr
        assert said in ended.stderr
        assert ("to hold it for later" in ended.stderr) is (command == "pause")
    assert run(team, "history").stdout == "nothing\n"


@played(work)
def test_an_own_hold_is_not_replaced_silently(team):
    """An indefinite one was replaced by one of two seconds."""
    assert pause(team, "@all").exit_code == Status.DONE
    again = pause(team, "@all", "--for", "2s")
    assert (again.exit_code, again.stdout) == (Status.FAILED, "")
    assert "held already: @all operator:alice since 2" in again.stderr
    assert "until resumed x. Nothing was changed" in again.stderr
    replaced = pause(team, "@all", "--for", "2h", "--replace")
    assert replaced.exit_code == Status.DONE
    assert re.search(
        r"instead of\n  @all +operator:alice .*until resumed", replaced.stdout
    )
    same = pause(team, "@all", "--for", "2h")
    assert (same.exit_code, "unchanged" in same.stdout) == (Status.DONE, True)
    first, later = past(team)
    # What it covers is held since the first: retention counts from then.
    assert (later["since"], later["at"] > first["at"]) == (first["at"], True)


@played(work)
def test_what_changed_between_look_and_write_is_not_overwritten(team, monkeypatch):
    """The same owner holds it for longer meanwhile: a script, say, and a person."""
    looking = Operator.look

    def late(self, group, **options):
        seen = looking(self, group, **options)
        team.operator_holds("@all", owner="alice")
        return seen

    with monkeypatch.context() as patch:
        patch.setattr(Operator, "look", late)
        ended = pause(team, "@all", "--for", "1h")
    assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
    assert "the holds have changed meanwhile. Nothing was changed" in ended.stderr
    (one,) = past(team)
    assert (one["reason"], one["expires_at"]) == ("test", None)


@played(leave)
def test_a_loop_that_repeats_pause_prolongs_nothing_silently(team):
    """Nobody reports: the hold is unchanged, or it may have ended and is renewed."""
    for becomes in ("held", "unchanged", "renewed"):
        if becomes == "renewed":
            team.broker.lab.sleep(31 * 60)
        for more in ((), ("--replace",)) if becomes == "unchanged" else ((),):
            ended = pause(team, "@all", "--for", "30m", *more, "-o", "json")
            told = json.loads(ended.stdout)
            assert ended.exit_code == Status.DONE
            said = {key for key in ("held", "unchanged", "renewed") if told[key]}
            assert said == {becomes} | ({"held"} if becomes == "renewed" else set())
    assert len(past(team)) == 2


@played(work)
def test_extend_never_shortens(team):
    def extend(*arguments):
        return by_alice(team, "extend", "@all", *arguments)

    assert "place it, or name its owner" in extend("--for", "1h").stderr
    placed = pause(team, "@all", "--for", "1h", "-o", "json")
    (first,) = json.loads(placed.stdout)["held"]
    assert "which is later" in extend("--for", "30m").stderr
    longer = extend("--for", "2h", "-o", "json")
    (one,) = json.loads(longer.stdout)["held"]
    assert (longer.exit_code, one["reason"]) == (Status.DONE, "x")
    assert round(one["expires_at"] - one["at"]) == 7200
    assert (one["id"], one["since"]) == (first["id"], first["at"])
    pause(team, "@all", "--replace")
    assert "until it is resumed" in extend("--for", "9h").stderr


@played(work)
def test_where_and_as_whom_it_was_placed(team, monkeypatch):
    """In containers everybody is root: the default owner has the host's name."""
    monkeypatch.setattr("socket.gethostname", lambda: "build7")
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    group = ("--group", team.group)
    ended = run(team, "pause", "@all", *group, "--reason", "x", "-o", "json")
    (one,) = json.loads(ended.stdout)["held"]
    assert (one["owner"], one["host"]) == ("root@build7", "build7")
    shown = json.loads(run(team, "status", *group, "-o", "json").stdout)
    assert [(one["id"], one["host"])] == [
        (hold["id"], hold["host"]) for hold in shown["holds"]
    ]
    monkeypatch.setenv("SAFECONSUMER_OWNER", "alice")
    in_vain = run(team, "resume", "@all", *group)
    assert "was not held: @all operator:alice" in in_vain.stdout
    assert "operator:root@build7" in in_vain.stdout
    assert in_vain.exit_code == Status.FAILED
    ended = run(team, "resume", "@all", "--owner", one["owner"], *group)
    assert "lifted @all operator:root@build7" in ended.stdout
    assert held(team) == []


@played(work)
def test_resume_all_of_one_owner(team):
    pause(team, f"{team.topic}:0-1,3", "re:ord.*")
    pause(team, "@all", "--owner", "bob")
    assert len(held(team)) == 5
    ended = by_alice(team, "resume", "--all")
    lifted = re.findall(r"^lifted ", ended.stdout, re.MULTILINE)
    assert (ended.exit_code, len(lifted)) == (Status.DONE, 4)
    assert held(team) == [("@all", "bob")]
    ended = by_alice(team, "resume", "--all")
    assert ended.exit_code == Status.FAILED
    assert "there are holds by operator:bob" in ended.stderr


@played(work)
def test_the_audit_reads_the_topics_as_the_history_tells(team):
    """With clients and a decoder of its own; what was held long ago counts, too."""
    pause(team, team.topic, "--for", "1h")
    by_alice(team, "extend", team.topic, "--for", "2h")
    pause(team, "re:ord.*", "--for", "3h")
    by_alice(team, "resume", team.topic)
    read = read_control(team.broker.client_config, team.settings.holds_topic)
    told = run(team, "history", "-o", "json").stdout
    there = from_history("history", told)
    assert [
        (one.scope, one.holder, one.end - one.start > 1e4) for one in read.spans
    ] == [(team.topic, "operator:alice", False), ("re:ord.*", "operator:alice", True)]
    assert read.spans == there.spans
    assert read.trouble == there.trouble == ""
    assert read.since == there.since == 0  # nothing is compacted away yet
    assert read.cluster == there.cluster
    assert read.cluster
    missing = ("--control", *where(team), "--topic-prefix", "none-")
    ended = audit(__file__, *missing)
    assert ended.exit_code == Status.REFUSED
    assert "none-holds_ops" in ended.stderr


@pytest.mark.contract("S5")
@played()
def test_the_audit_finds_whoever_does_not_obey(team, tmp_path):
    """
    G2: what a group was told stands in the control topics, live or as history.

    A member without control= does not measure the broker's clock: of a topic with its
    producers' times nothing is judged.
    """
    logged = f"{team.topic}-logged"
    team.create(logged, {"message.timestamp.type": "LogAppendTime"})
    pause(team, "@all", "--future")
    obeys, leaks = (str(tmp_path / name) for name in ("obeys", "leaks"))
    consumer = team.member("a", journal=obeys)
    consumer.subscribe([team.topic, logged])
    poll_until(consumer, lambda: len(consumer.quiet()) == 5)
    consumer.close()
    produce(team.producer, logged, 1)
    plain = team.member("b", control=None, journal=leaks)
    plain.subscribe([team.topic, logged])
    got = {}
    poll_until(plain, lambda: sum(map(len, got.values())) == 21, got=got)
    plain.close()
    history = tmp_path / "history.json"
    history.write_text(run(team, "history", "-o", "json").stdout)
    for asked in (("--control", *where(team)), ("--history", str(history))):
        assert audit(obeys, *asked).exit_code == 0
        ended = audit(obeys, leaks, *asked)
        assert ended.exit_code == 1, ended.output
        assert f"G2  {logged}:0 of {team.group}  1 x, first by b" in ended.stdout
        assert "delivered though @all was held for the group before" in ended.stdout
        why = "and 3 more  could not be judged: the journal of b"
        assert ended.stdout.count(why) == 1


def audit(*arguments):
    return CliRunner().invoke(safeconsumer, ["audit", *arguments])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("resume",), "4 partitions flow again: "),
        (("extend", "--for", "3h"), "would last 3h, until 2"),
    ],
    ids=["resume", "extend"],
)
@played(work)
def test_a_dry_run_of_what_changes_a_hold_writes_nothing(team, words, says):
    """It says what pages say of it; refused it ends as the command does."""
    assert pause(team, team.topic, "--for", "2h").exit_code == Status.DONE
    ended = by_alice(team, *words, team.topic, "--dry-run")
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
    assert says in ended.stdout
    assert ended.stdout.endswith("nothing was changed\n")
    document = json.loads(
        by_alice(team, *words, "@all", "--dry-run", "-o", "json").stdout
    )
    assert document["dry_run"]
    assert len(past(team)) == 1
    ended = by_alice(team, "extend", "@all", "--for", "1h", "--dry-run")
    assert (ended.exit_code, "@all is not held by alice" in ended.stderr) == (1, True)


@played(work)
def test_history_tells_what_was_done(team):
    pause(team, team.topic, "--for", "1h")
    by_alice(team, "resume", team.topic, "--owner", "carol")
    by_alice(team, "extend", team.topic, "--for", "2h")
    pause(team, team.topic, "--for", "3h", "--replace")
    for _ in range(2):
        by_alice(team, "resume", team.topic)
    told = past(team)
    assert [(one["what"], one["owner"]) for one in told] == [
        ("held", "alice"),
        ("extended", "alice"),
        ("held again", "alice"),
        ("lifted", "alice"),
    ]
    shown = run(team, "history", "--group", team.group).stdout
    assert [re.split(r"  +", line)[1] for line in shown.splitlines()] == [
        one["what"] for one in told
    ]


@played(work)
@pytest.mark.nightly
def test_a_history_since_a_moment_is_no_proof(team):
    """A hold from before it may stand, so an audit judges by none of it."""
    pause(team, team.topic)
    team.broker.lab.sleep(100)
    pause(team, "@all")
    told = json.loads(run(team, "history", "--since", "50s", "-o", "json").stdout)
    assert [one["scope"] for one in told["records"]] == ["@all"]
    assert {one["complete_since"] for one in told["topics"]} == {told["until"]}
    shown = run(team, "history", "--since", "50s").stdout
    assert [line.split()[3] for line in shown.splitlines()] == [team.group]
    team.broker.lab.sleep(100)
    assert run(team, "history", "--since", "50s").stdout == "nothing\n"


class Steps:
    """Stands for the event of a command that follows: does a step between two looks."""

    def __init__(self, *steps):
        self._steps = [*steps, lambda: signal.raise_signal(signal.SIGINT)]
        self._is_set = False

    def set(self):
        self._is_set = True

    def is_set(self):
        return self._is_set

    def wait(self, _):
        if self._steps:
            self._steps.pop(0)()
        return self._is_set


def followed(team, monkeypatch, *steps, form=("-o", "json")):
    """Follow the history of a team while steps are taken, until Ctrl-C."""
    with monkeypatch.context() as patch:
        event = Steps(*steps)
        patch.setattr("safeconsumer.cli.history.InterruptibleEvent", lambda: event)
        return run(team, "history", "--group", team.group, "--follow", *form)


@played(work)
def test_a_history_is_followed(team, monkeypatch):
    """Each line is an object; Ctrl-C is how it ends, with status 0."""
    pause(team, team.topic, "--for", "60s")
    ended = followed(
        team,
        monkeypatch,
        lambda: pause(team, "@all", "--for", "1h"),
        lambda: None,
        lambda: by_alice(team, "resume", "@all"),
        lambda: team.broker.lab.sleep(100),  # members lift it after 90 s
    )
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    first, *_, last = lines
    assert [(one["what"], one["scope"]) for one in lines] == [
        ("held", team.topic),
        ("held", "@all"),
        ("lifted", "@all"),
        (last["what"], team.topic),
    ]
    assert last["what"] in {"expired", "may have ended"}
    assert last["at"] == first["expires_at"]
    told = past(team)[0]
    assert first == {**told, "has_expired": False, "may_have_expired": False}


@played(work)
def test_a_step_of_a_followed_history_costs_no_more_the_longer_it_is(team, monkeypatch):
    """Each look judged all records of the topic anew."""
    judged, is_over, costs = [], HoldRecord.is_over, []

    def counted(self, now):
        judged.append(now)
        return is_over(self, now)

    def step():
        costs.append(len(judged))
        pause(team, "@all", "--for", "1h")
        by_alice(team, "resume", "@all")
        judged.clear()

    monkeypatch.setattr(HoldRecord, "is_over", counted)
    pause(team, team.topic, "--for", "1h")
    ended = followed(team, monkeypatch, *[step] * 8)
    assert len(ended.stdout.splitlines()) == 1 + 2 * 7 + 2
    assert costs[-1] == costs[2]


@played(work)
def test_a_history_is_followed_as_a_table(team, monkeypatch):
    step = lambda: pause(team, "@all", "--for", "1h")  # noqa: E731 - it is a step
    ended = followed(team, monkeypatch, step, form=("--since", "1s"))
    (line,) = ended.stdout.splitlines()
    assert re.split(r"  +", line)[1:4] == ["held", team.group, "@all"]


@played(work)
def test_a_history_is_followed_while_the_broker_is_away(team, monkeypatch):
    """One line says so, however long it takes; nothing is told twice or left out."""
    pause(team, team.topic)
    ended = followed(
        team,
        monkeypatch,
        team.broker.down,
        lambda: None,
        team.broker.up,
        lambda: pause(team, "@all"),
        lambda: None,
    )
    assert ended.exit_code == Status.DONE, ended.output
    scopes = [json.loads(line)["scope"] for line in ended.stdout.splitlines()]
    assert scopes == [team.topic, "@all"]
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.endswith("it is tried again\n")


@played(work)
def test_a_history_is_not_followed_if_the_broker_is_away_at_first(team):
    """An address that is wrong would be waited for without an end; the help says so."""
    team.broker.down()
    ended = run(team, "history", "--group", team.group, "--follow", "-o", "json")
    assert (ended.exit_code, ended.stdout) == (Status.UNREACHABLE, "")
    told = " ".join(run(team, "history", "--help").stdout.split())
    assert (
        "If no broker answers at first it ends with 3. Once it has begun it waits"
        in told
    )


@played(work)
def test_resume_waits_until_it_flows(team):
    """Or says who else holds it, with the status of a wait in vain."""
    for owner in ("alice", "bob"):
        run(team, "pause", "--reason", "x", team.topic, *by(team, owner))
    ended = by_alice(team, "resume", team.topic, "--wait", "1s")
    assert (ended.exit_code, f"lifted {team.topic}" in ended.stdout) == (1, True)
    assert f"not flowing in 1 s: held: {team.topic} by bob" in ended.stderr
    bob = by(team, "bob")
    ended = run(team, "resume", team.topic, "--wait", "30s", "-o", "json", *bob)
    wait = json.loads(ended.stdout)["wait"]
    assert (ended.exit_code, wait["is_reached"]) == (Status.DONE, True)
    again = run(team, "resume", team.topic, "--wait", "30s", *bob)
    assert f"was not held: {team.topic}" in again.stdout
    assert f"flowing: {team.topic}:0-3" in again.stdout


@played(leave)
def test_a_resume_that_is_repeated_waits_although_nothing_is_held_any_more(team):
    """The status was 0 at once, though nobody had read the lift."""
    pause(team, team.topic)
    resume = partial(by_alice, team, "resume", team.topic, "--wait", "1s")
    first, second = resume(), resume()
    why = f"but not flowing in 1 s: {team.topic}:0-3"
    assert f"lifted, {why}" in first.stderr
    assert f"not held, {why}" in second.stderr
    assert (first.exit_code, second.exit_code) == (Status.FAILED, Status.FAILED)


@played(work)
def test_pause_and_wait_then_resume_and_wait(team):
    ended = pause(team, team.topic, "--wait", "20s")
    assert ended.exit_code == Status.DONE
    assert "1 of 1 members quiet, after " in ended.stdout
    group = ("--group", team.group)
    not_yet = run(team, "wait", "flowing", *group, "--timeout", "0.1s")
    assert not_yet.exit_code == Status.FAILED
    assert f"held: {team.topic} by alice" in not_yet.stderr
    by_alice(team, "resume", team.topic)
    flows = run(team, "wait", "flowing", *group, "--timeout", "20s")
    assert (flows.exit_code, flows.stdout) == (
        Status.DONE,
        f"flowing: {team.topic}:0-3\n",
    )


@played(work)
def test_a_wait_outlives_an_outage(team, monkeypatch):
    """It is for that long that somebody waits; a refusal ends it at once."""
    pause(team, "@all")
    looking, looks = Operator.look, [None, KafkaTimeoutError("x"), ConnectionError()]
    with Operator(team.broker.client_config, team.settings) as one:
        seen = one.look(team.group)

    def interrupted(self, group, **options):
        trouble = looks.pop(0) if looks else None
        if trouble is not None:
            raise trouble
        return seen if looks else looking(self, group, **options)

    monkeypatch.setattr(Operator, "look", interrupted)
    arguments = ("wait", "flowing", "--group", team.group, "--timeout")
    ended = run(team, *arguments, "3s")
    assert (looks, ended.exit_code) == ([], Status.FAILED)
    assert "held: @all by alice" in ended.stderr
    looks[:] = [None, *(KafkaTimeoutError("x") for _ in range(100))]
    ended = run(team, *arguments, "5s")
    assert (len(looks) > 50, ended.exit_code) == (True, Status.UNREACHABLE)
    looks[:] = [None, TopicAuthorizationFailedError("x")]
    assert run(team, *arguments, "60s").exit_code == Status.REFUSED


@played(work)
def test_all_groups_at_a_glance(team):
    """What does not obey, and when the next hold ends; others are a count."""
    none = run(team, "status")
    folded = "nothing is held in 1 group: --all lists them\n"
    assert (none.exit_code, none.stdout) == (Status.DONE, folded)
    listed = run(team, "status", "--all").stdout
    assert re.search(rf"^{team.group} +Stable .* nothing held$", listed, re.MULTILINE)
    pause(team, "@all", "--for", "1h", "--wait", "60s")
    later = f"new-{team.group}"
    pause(team, "@all", "--group", later, "--future")
    for command in (("status", "--all"), ("status",)):
        found = json.loads(run(team, *command, "-o", "json").stdout)
        assert found["unread"] == []
        assert found["read_until"] >= found["now"]
        by_name = {one["group"]: one for one in found["groups"]}
        own = by_name[team.group]
        assert (own["members"], own["reporting"], own["hold_count"]) == (1, 1, 1)
        assert (own["words"], own["sentence"]) == ("quiet", "1 of 1 members quiet")
        assert own["next_expiry"] is not None
        assert by_name[later]["state"] == "Dead"
    shown = run(team, "status").stdout
    assert re.search(rf"^{team.group} +Stable +1, 1 report +1 +2", shown, re.MULTILINE)
    assert "--all" not in shown
    refused = run(team, "status", "--all", "--group", team.group)
    assert (refused.exit_code, refused.stdout) == (Status.USAGE, "")


# ---------------------------------------------------------------- ends of holds


@played(leave)
def test_lifting_what_is_over_is_lifting_in_vain(team, monkeypatch):
    """In the wrong name, that is: somebody else holds that very scope."""
    team.operator_holds("@all", for_=0.001, owner="alice")
    team.operator_holds("@all", owner="bob")
    team.operator_holds("other", owner="bob")
    monkeypatch.setattr(Control, "prefixed", partial(Control.prefixed, clock_skew=0))
    ended = by_alice(team, "resume", "@all")
    assert ended.exit_code == Status.FAILED
    assert "was not held: @all operator:alice" in ended.stdout
    assert ended.stderr.endswith("nothing was lifted: name the owner, --owner bob\n")


@pytest.mark.parametrize("what", ["@all", "--all"])
@played(leave)
def test_a_hold_of_a_later_version_is_lifted_after_an_upgrade(team, what):
    """It advised to name the owner who was named."""
    key = f"2\0{team.group}\0alice\0@all".encode()
    team.write_raw(team.settings.holds_topic, key, b'{"v":2}').get(10)
    ended = by_alice(team, "resume", what)
    assert ended.exit_code == Status.FAILED
    assert ended.stderr.endswith(
        "nothing was lifted: a later version holds @all; upgrade first\n"
    )


@played(leave)
def test_what_to_lift_is_given_in_one_way(team):
    for given, said in (
        (("--all", team.topic), "too much: give only one of SCOPE... or --all"),
        ((), "nothing to lift: give SCOPE... or --all"),
    ):
        ended = by_alice(team, "resume", *given)
        assert ended.exit_code == Status.USAGE
        assert said in ended.stderr
