"""The commands of operators in a working group: pause, extend, resume, wait, history."""

import json
import re
import signal
from functools import partial

import pytest
from click.testing import CliRunner
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

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
from tests.sim.group.teams import document, leave, patient, pause, played, typed, work

FAILED = Status.FAILED


def tried(team, command, *arguments, owner="alice"):
    """Run a command; return its status and the output of both streams."""
    whose = ("--group", team.group, "--owner", owner)
    return run(team, command, *whose, *arguments)


def held(team):
    """Return the holds on the topic, as scope and owner."""
    last = {(one["scope"], one["owner"]): one["is_held"] for one in past(team)}
    return [key for key, is_held in last.items() if is_held]


@played(work)
def test_scope_that_covers_nothing_is_refused_with_a_hint(team):
    hints = {
        f"{team.topic}x": f"did you mean {team.topic}?",
        f"{team.topic}:9": f"it has {team.topic}:0-3",
        "all": "everything is @all",
        "re:none.*": f"it consumes {team.topic}",
        team.settings.holds_topic: "though there is such a topic",
    }
    commands = [("pause", "--reason", "x", scope) for scope in hints]
    commands += [("wait", "quiet", f"{team.topic}x"), ("resume", f"{team.topic}:9")]
    for command, *more, scope in commands:
        why = typed(team, command, *more, scope, status=Status.USAGE)
        assert f"{scope} covers nothing that {team.group} consumes" in why
        assert hints[scope] in why
        assert ("to hold it for later" in why) is (command == "pause")
    assert run(team, "history").stdout == "nothing\n"


@played(work)
def test_own_hold_is_replaced_only_with_the_flag(team):
    pause(team, "@all")
    why = pause(team, "@all", "--for", "2s", status=FAILED)
    assert "held already: @all operator:alice since 2" in why
    assert "until resumed x. Nothing was changed" in why
    printed = pause(team, "@all", "--for", "2h", "--replace")
    assert re.search(r"instead of\n  @all +operator:alice .*until resumed", printed)
    assert "unchanged" in pause(team, "@all", "--for", "2h")
    first, later = past(team)
    # Retention counts from the first hold, even if another hold replaces it.
    assert (later["since"], later["at"] > first["at"]) == (first["at"], True)
    assert "unchanged" in pause(team, "@all", "--for", "1h")
    assert "instead of" in pause(team, "@all", "--for", "1h", "--replace")


@played(work)
def test_hold_that_changes_between_read_and_write_is_not_overwritten(team, monkeypatch):
    """Another program of the same owner places a longer hold in between."""
    looking = Operator.look

    def late(self, group, **options):
        seen = looking(self, group, **options)
        team.operator_holds("@all", owner="alice")
        return seen

    with monkeypatch.context() as patch:
        patch.setattr(Operator, "look", late)
        why = pause(team, "@all", "--for", "1h", status=FAILED)
    assert "the holds have changed in the meantime. Nothing was changed" in why
    (one,) = past(team)
    assert (one["reason"], one["expires_at"]) == ("test", None)


@played(leave)
def test_repeated_pause_does_not_silently_prolong_a_hold(team):
    """Without members' reports a repeated pause renews a hold only if it may have ended."""
    for becomes in ("held", "unchanged", "renewed"):
        if becomes == "renewed":
            team.broker.lab.sleep(31 * 60)
        for more in ((), ("--replace",)) if becomes == "unchanged" else ((),):
            asked = ("@all", "--for", "30m", "--reason", "x", *more)
            found = document(team, "pause", *asked)
            keys = {key for key in ("held", "unchanged", "renewed") if found[key]}
            assert keys == {becomes} | ({"held"} if becomes == "renewed" else set())
    assert len(past(team)) == 2


@played(work)
def test_extend_never_shortens_a_hold(team):
    extend = partial(typed, team, "extend", "@all", "--for")
    assert "place it, or name its owner" in extend("1h", status=FAILED)
    asked = ("@all", "--for", "1h", "--reason", "x")
    (first,) = document(team, "pause", *asked)["held"]
    assert "which is later" in extend("30m", status=FAILED)
    (one,) = document(team, "extend", "@all", "--for", "2h")["held"]
    assert one["reason"] == "x"
    assert round(one["expires_at"] - one["at"]) == 7200
    assert (one["id"], one["since"]) == (first["id"], first["at"])
    pause(team, "@all", "--replace")
    assert "until it is resumed" in extend("9h", status=FAILED)


@played(work)
def test_hold_names_its_host_and_owner(team, monkeypatch):
    """In containers every user is root, so the default owner includes the host name."""
    monkeypatch.setattr("socket.gethostname", lambda: "build7")
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    group = ("--group", team.group)
    ended = run(team, "pause", "@all", *group, "--reason", "x", "-o", "json")
    (one,) = json.loads(ended.stdout)["held"]
    assert (one["owner"], one["host"]) == ("root@build7", "build7")
    (shown,) = document(team, "status")["holds"]
    assert (shown["id"], shown["host"]) == (one["id"], one["host"])
    monkeypatch.setenv("SAFECONSUMER_OWNER", "alice")
    in_vain = run(team, "resume", "@all", *group)
    assert "was not held: @all operator:alice" in in_vain.stdout
    assert "operator:root@build7" in in_vain.stdout
    assert in_vain.exit_code == FAILED
    lifted = typed(team, "resume", "@all", owner=one["owner"])
    assert "lifted @all operator:root@build7" in lifted
    assert held(team) == []


@played(work)
def test_owner_is_accepted_in_the_form_that_commands_show(team):
    pause(team, "@all", owner="operator:alice")
    pause(team, team.topic, owner="alice")
    assert held(team) == [("@all", "alice"), (team.topic, "alice")]
    why = typed(team, "resume", "--all", owner="bob", status=FAILED)
    assert "there are holds by operator:alice" in why
    typed(team, "resume", "@all", owner="operator:alice")
    with Operator(team.broker.client_config, team.settings) as one:
        one.resume(team.group, team.topic, owner="operator:alice")
    assert held(team) == []


@played(work)
def test_resume_all_lifts_the_holds_of_one_owner(team):
    pause(team, f"{team.topic}:0-1,3", "re:ord.*")
    pause(team, "@all", owner="bob")
    assert len(held(team)) == 5
    lifted = re.findall(r"^lifted ", typed(team, "resume", "--all"), re.MULTILINE)
    assert len(lifted) == 4
    assert held(team) == [("@all", "bob")]
    why = typed(team, "resume", "--all", status=FAILED)
    assert "there are holds by operator:bob" in why


@played(work)
def test_dry_run_prints_the_plan_and_writes_nothing(team):
    """A refused dry run has the same exit status and message as the command itself."""
    pause(team, team.topic, "--for", "2h")
    for words, prints in (
        (("resume",), "4 partitions flow again: "),
        (("extend", "--for", "3h"), "would last 3h, until 2"),
    ):
        printed = typed(team, *words, team.topic, "--dry-run")
        assert prints in printed
        assert printed.endswith("nothing was changed\n")
        ended = tried(team, *words, "@all", "--dry-run", "-o", "json")
        assert json.loads(ended.stdout)["dry_run"]
    assert len(past(team)) == 1
    ended = tried(team, "extend", "@all", "--for", "1h", "--dry-run")
    assert (ended.exit_code, "@all is not held by alice" in ended.stderr) == (1, True)


# ---------------------------------------------------------------- the audit


@played(work)
def test_audit_finds_the_same_holds_in_the_topic_as_in_its_history(team):
    """The audit has its own clients and decoder."""
    pause(team, team.topic, "--for", "1h")
    typed(team, "extend", team.topic, "--for", "2h")
    pause(team, "re:ord.*", "--for", "3h")
    typed(team, "resume", team.topic)
    read = read_control(team.broker.client_config, team.settings.holds_topic)
    there = from_history("history", run(team, "history", "-o", "json").stdout)
    assert [
        (one.scope, one.holder, one.end - one.start > 1e4) for one in read.spans
    ] == [(team.topic, "operator:alice", False), ("re:ord.*", "operator:alice", True)]
    assert read.spans == there.spans
    assert read.trouble == there.trouble == ""
    assert read.since == there.since == 0  # no record is compacted away yet
    assert read.cluster == there.cluster
    assert read.cluster
    missing = ("--control", *where(team), "--topic-prefix", "none-")
    ended = audit(__file__, *missing)
    assert ended.exit_code == Status.REFUSED
    assert "none-holds_ops" in ended.stderr


@pytest.mark.contract("S5")
@played()
def test_audit_finds_a_member_that_ignores_a_hold(team, tmp_path):
    """
    G2: the control topics prove the violation, live or as a history.

    A member without control= does not measure the broker's clock, so the audit cannot judge
    the member on a topic whose records have their producers' timestamps.
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


# ---------------------------------------------------------------- history


@played(work)
def test_history_prints_the_changes(team):
    pause(team, team.topic, "--for", "1h")
    tried(team, "resume", team.topic, owner="carol")
    typed(team, "extend", team.topic, "--for", "2h")
    pause(team, team.topic, "--for", "3h", "--replace")
    for _ in range(2):
        tried(team, "resume", team.topic)
    records = past(team)
    assert [(one["what"], one["owner"]) for one in records] == [
        ("held", "alice"),
        ("extended", "alice"),
        ("held again", "alice"),
        ("lifted", "alice"),
    ]
    shown = typed(team, "history").splitlines()
    whats = [one["what"] for one in records]
    assert [re.split(r"  +", line)[1] for line in shown] == whats


@played(work)
@pytest.mark.nightly
def test_history_since_a_time_is_marked_as_incomplete(team):
    """An earlier hold may be in force, so an audit does not judge by this history."""
    pause(team, team.topic)
    team.broker.lab.sleep(100)
    pause(team, "@all")
    found = json.loads(run(team, "history", "--since", "50s", "-o", "json").stdout)
    assert [one["scope"] for one in found["records"]] == ["@all"]
    assert {one["complete_since"] for one in found["topics"]} == {found["until"]}
    shown = run(team, "history", "--since", "50s").stdout
    assert [line.split()[3] for line in shown.splitlines()] == [team.group]
    team.broker.lab.sleep(100)
    assert run(team, "history", "--since", "50s").stdout == "nothing\n"


class Steps:
    """Replaces the event on which ``history --follow`` waits; each wait performs one step."""

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
    """Follow the history of a team while the steps run, until Ctrl-C."""
    with monkeypatch.context() as patch:
        event = Steps(*steps)
        patch.setattr("safeconsumer.cli.history.InterruptibleEvent", lambda: event)
        return run(team, "history", "--group", team.group, "--follow", *form)


@played(work)
def test_followed_history_prints_a_line_for_each_change(team, monkeypatch):
    """The lines are JSON or a table, and Ctrl-C ends the command with status 0."""
    pause(team, team.topic, "--for", "60s")
    ended = followed(
        team,
        monkeypatch,
        lambda: pause(team, "@all", "--for", "1h"),
        lambda: None,
        lambda: typed(team, "resume", "@all"),
        # the hold expires after 60 s, in members after 90 s
        lambda: team.broker.lab.sleep(100),
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
    record = past(team)[0]
    assert first == {**record, "has_expired": False, "may_have_expired": False}
    step = partial(pause, team, "@all", "--for", "2h")
    ended = followed(team, monkeypatch, step, form=("--since", "1s"))
    (line,) = ended.stdout.splitlines()
    assert re.split(r"  +", line)[1:4] == ["held", team.group, "@all"]


@pytest.mark.contract("G8")
@played(patient)
def test_history_uses_the_clock_skew_of_members_for_the_end_of_a_hold(
    team, monkeypatch
):
    """A member that allows more clock skew than the command obeys the hold longer."""

    def outlast():
        team.broker.lab.sleep(80)
        assert "members lift it until" in typed(team, "status")

    pause(team, "@all", "--for", "20s", "--wait", "30s")
    lift = partial(typed, team, "resume", "@all")
    ended = followed(team, monkeypatch, outlast, lift)
    lines = map(json.loads, ended.stdout.splitlines())
    assert [one["what"] for one in lines] == ["held", "lifted"]
    assert [one["what"] for one in past(team)] == ["held", "lifted"]


@played(work)
def test_cost_of_a_step_does_not_grow_with_the_followed_history(team, monkeypatch):
    judged, is_over, costs = [], HoldRecord.is_over, []

    def step():
        costs.append(len(judged))
        pause(team, "@all", "--for", "1h")
        typed(team, "resume", "@all")
        judged.clear()

    monkeypatch.setattr(
        HoldRecord, "is_over", lambda one, now: judged.append(0) or is_over(one, now)
    )
    pause(team, team.topic, "--for", "1h")
    ended = followed(team, monkeypatch, *[step] * 8)
    assert len(ended.stdout.splitlines()) == 1 + 2 * 7 + 2
    assert costs[-1] == costs[2]


@played(work)
def test_followed_history_survives_an_outage(team, monkeypatch):
    """One line reports the whole outage, and no change is repeated or missing."""
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
    assert ended.stderr.endswith("the command tries again\n")


@played(work)
def test_followed_history_ends_if_the_broker_is_down_at_first(team):
    """Otherwise the command would wait forever at a wrong address."""
    team.broker.down()
    asked = ("history", "--follow", "-o", "json")
    typed(team, *asked, status=Status.UNREACHABLE)
    shown = " ".join(run(team, "history", "--help").stdout.split())
    why = "If no broker answers at the start, the status is 3. After that, the command waits"
    assert why in shown


# ---------------------------------------------------------------- waiting


@played(work)
def test_resume_waits_until_its_partitions_are_delivered_again(team):
    """The command fails after its timeout if other holds remain, and names their owners."""
    for owner in ("alice", "bob"):
        pause(team, team.topic, owner=owner)
    ended = tried(team, "resume", team.topic, "--wait", "1s")
    assert (ended.exit_code, f"lifted {team.topic}" in ended.stdout) == (1, True)
    assert f"not flowing in 1 s: held: {team.topic} by bob" in ended.stderr
    waiting = ("resume", team.topic, "--wait", "30s")
    assert document(team, *waiting, owner="bob")["wait"]["is_reached"]
    again = tried(team, *waiting, owner="bob")
    assert f"was not held: {team.topic}" in again.stdout
    assert f"flowing: {team.topic}:0-3" in again.stdout


@played(leave)
def test_repeated_resume_waits_even_without_a_hold(team):
    """No member has read the record that lifts the hold."""
    pause(team, team.topic)
    resume = partial(tried, team, "resume", team.topic, "--wait", "1s")
    first, second = resume(), resume()
    why = f"but not flowing in 1 s: {team.topic}:0-3"
    assert f"lifted, {why}" in first.stderr
    assert f"not held, {why}" in second.stderr
    assert (first.exit_code, second.exit_code) == (FAILED, FAILED)


@played(work)
def test_wait_reports_quiet_after_a_pause_and_flowing_after_a_resume(team):
    assert "1 of 1 members quiet, after " in pause(team, team.topic, "--wait", "20s")
    wait = partial(typed, team, "wait", "flowing", "--timeout")
    assert f"held: {team.topic} by alice" in wait("0.1s", status=FAILED)
    typed(team, "resume", team.topic)
    assert wait("20s") == f"flowing: {team.topic}:0-3\n"


@played(work)
def test_wait_survives_an_outage_and_ends_at_a_refusal(team, monkeypatch):
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
    assert (looks, ended.exit_code) == ([], FAILED)
    assert "held: @all by alice" in ended.stderr
    looks[:] = [None, *(KafkaTimeoutError("x") for _ in range(100))]
    ended = run(team, *arguments, "5s")
    assert (len(looks) > 50, ended.exit_code) == (True, Status.UNREACHABLE)
    looks[:] = [None, TopicAuthorizationFailedError("x")]
    assert run(team, *arguments, "60s").exit_code == Status.REFUSED


@played(work)
def test_status_lists_groups_with_holds_and_counts_the_others(team):
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
    assert re.search(rf"^{team.group} +Stable +1, 1 reports +1 +2", shown, re.MULTILINE)
    assert "--all" not in shown
    typed(team, "status", "--all", status=Status.USAGE)


# ---------------------------------------------------------------- lifts without effect


@played(leave)
def test_resume_of_the_wrong_owner_names_the_other_owners(team, monkeypatch):
    """The owner's hold has ended, and another owner holds the same scope."""
    team.operator_holds("@all", for_=0.001, owner="alice")
    team.operator_holds("@all", owner="bob")
    team.operator_holds("other", owner="bob")
    monkeypatch.setattr(Control, "prefixed", partial(Control.prefixed, clock_skew=0))
    ended = tried(team, "resume", "@all")
    assert ended.exit_code == FAILED
    assert "was not held: @all operator:alice" in ended.stdout
    assert ended.stderr.endswith("nothing was lifted: name the owner, --owner bob\n")


@played(work)
def test_repeated_resume_with_wait_waits_for_the_other_owners(team):
    for owner in ("alice", "bob"):
        pause(team, "@all", owner=owner)
    first = tried(team, "resume", "@all", "--wait", "2s")
    assert first.exit_code == FAILED
    assert "lifted, but not flowing in 2 s: held: @all by bob" in first.stderr
    again = tried(team, "resume", "@all", "--wait", "2s")
    assert again.exit_code == FAILED
    assert "not held, but not flowing in 2 s: held: @all by bob" in again.stderr

    def lift_later():
        team.broker.lab.sleep(4)
        team.operator_lifts("@all", owner="bob")

    team.broker.lab.start("bob", lift_later)
    last = tried(team, "resume", "@all", "--wait", "30s")
    assert (last.exit_code, last.stderr) == (Status.DONE, "")
    assert "was not held: @all operator:alice" in last.stdout
    assert f"flowing: {team.topic}:0-3, after " in last.stdout


@played(work)
def test_resume_of_a_topic_names_the_held_partitions(team):
    """Only holds of exactly this scope are lifted, and a dry run has the same result."""
    pause(team, f"{team.topic}:0-1")
    pause(team, f"{team.topic}:3", owner="bob")
    dry = tried(team, "resume", team.topic, "--dry-run")
    assert "no partition starts to flow now\n" in dry.stdout
    ended = tried(team, "resume", team.topic)
    assert dry.stderr == ended.stderr
    assert dry.exit_code == ended.exit_code == FAILED
    assert f"was not held: {team.topic} operator:alice" in ended.stdout
    assert ended.stderr.endswith(
        "nothing was lifted: name a scope as it is held: "
        f"{team.topic}:0, {team.topic}:1 by alice; {team.topic}:3 by bob\n"
    )
    assert len(held(team)) == 3


@played(leave)
def test_hold_of_a_later_version_is_lifted_only_after_an_upgrade(team):
    key = f"2\0{team.group}\0alice\0@all".encode()
    team.write_raw(team.settings.holds_topic, key, b'{"v":2}').get(10)
    for what in (("@all",), ("--all",), ("@all", "--wait", "30s")):
        ended = tried(team, "resume", *what)
        assert ended.exit_code == FAILED
        assert ended.stderr.endswith(
            "nothing was lifted: a later version holds @all; upgrade first\n"
        )


@played(leave)
def test_resume_requires_either_scopes_or_all(team):
    for given, why in (
        (("--all", team.topic), "too much: give only one of SCOPE... or --all"),
        ((), "nothing to lift: give SCOPE... or --all"),
    ):
        assert why in typed(team, "resume", *given, status=Status.USAGE)
