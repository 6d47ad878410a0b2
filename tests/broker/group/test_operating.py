"""What operators type that is not quite right, and what they want to know first."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from safeconsumer.audit.control import from_history
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.control_topics import read_control
from safeconsumer.cli.errors import Status
from safeconsumer.errors import HoldSettingError, ScopeSyntaxError
from safeconsumer.group import ending
from safeconsumer.group.operator import Operator
from safeconsumer.group.scopes import scopes_of
from tests.harness.group.operating import run, where
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.producing import produce

WHY = ("--reason", "x", "--owner", "alice")

pytestmark = pytest.mark.usefixtures("time_to_look")


@pytest.fixture
def working(team: Team) -> Iterator[Team]:
    """Make a team with one member at work, which has committed everything."""
    consumer = team.subscribed("billing-1")
    got = team.settled(consumer)
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    consumer.commit()
    with Polled(consumer):
        yield team


def pause(team: Team, *arguments: str) -> Any:  # noqa: ANN401 - click's
    return run(team, "pause", "--group", team.group, *WHY, *arguments)


def held(team: Team) -> list[tuple[str, str]]:
    """Tell what stands on the topics, as scope and owner."""
    past = json.loads(run(team, "history", "-o", "json").stdout)["records"]
    last = {(one["scope"], one["owner"]): one["is_held"] for one in past}
    return [key for key, is_held in last.items() if is_held]


@pytest.mark.any_broker
@pytest.mark.parametrize("command", ["pause", "wait", "resume"])
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("{topic}x", "did you mean {topic}?"),
        ("{topic}:9", "it has {topic}:0-3"),
        ("all", "everything is @all"),
        ("re:none.*", "it consumes {topic}"),
        ("{own}", "though there is such a topic"),
    ],
)
def test_what_covers_nothing_is_refused(
    working: Team, command: str, typed: str, said: str
) -> None:
    """With what was perhaps meant; nothing is written."""
    names = {"topic": working.topic, "own": working.settings.operator_topic}
    scope = typed.format(**names)
    arguments = {
        "pause": ("pause", scope, *WHY),
        "wait": ("wait", "quiet", scope),
        "resume": ("resume", scope, "--owner", "alice"),
    }[command]
    ended = run(working, *arguments, "--group", working.group)
    assert (ended.exit_code, ended.stdout) == (Status.USAGE, "")
    assert ended.stderr.count("\n") == 1
    assert f"{scope} covers nothing that {working.group} consumes" in ended.stderr
    assert said.format(**names) in ended.stderr
    assert ("to hold it for later" in ended.stderr) is (command == "pause")
    assert run(working, "history").stdout == "nothing\n"


@pytest.mark.any_broker
def test_one_of_several_that_covers_nothing(working: Team) -> None:
    """Nothing is written of the others either; with --future all of it is."""
    scopes = (working.topic, "later")
    assert pause(working, *scopes).exit_code == Status.USAGE
    assert held(working) == []
    assert pause(working, *scopes, "--future").exit_code == Status.DONE
    assert held(working) == [(working.topic, "alice"), ("later", "alice")]


@pytest.mark.any_broker
def test_what_was_killed_between_two_scopes_is_run_again(
    working: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of its holds stand; these stay as they are, and the rest is placed."""
    scopes = f"{working.topic}:0-2"
    send, sent = KafkaProducer.send, count()

    def killed(self: KafkaProducer, topic: str, **record: Any) -> Any:  # noqa: ANN401 - upstream's
        if topic == working.settings.operator_topic and next(sent) == 2:
            self.flush(5)
            raise SystemExit(137)
        return send(self, topic, **record)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaProducer, "send", killed)
        assert pause(working, scopes).exit_code == 137
    first = json.loads(run(working, "history", "-o", "json").stdout)["records"]
    assert [one["scope"][-2:] for one in first] == [":0", ":1"]
    again = json.loads(pause(working, scopes, "-o", "json").stdout)
    told = {
        key: [one["scope"][-2:] for one in again[key]] for key in ("unchanged", "held")
    }
    assert (told["unchanged"], told["held"]) == ([":0", ":1"], [":2"])
    ids = [one["id"] for one in again["unchanged"]]
    assert ids == [one["id"] for one in first]


@pytest.mark.any_broker
def test_an_own_hold_is_not_replaced_silently(working: Team) -> None:
    """An indefinite one was replaced by one of two seconds."""
    assert pause(working, "@all").exit_code == Status.DONE
    again = pause(working, "@all", "--for", "2s")
    assert (again.exit_code, again.stdout) == (Status.FAILED, "")
    assert "held already: @all operator:alice since 2" in again.stderr
    assert "until resumed x. Nothing was changed" in again.stderr
    replaced = pause(working, "@all", "--for", "2h", "--replace")
    assert replaced.exit_code == Status.DONE
    assert re.search(
        r"instead of\n  @all +operator:alice .*until resumed", replaced.stdout
    )
    same = pause(working, "@all", "--for", "2h")
    assert (same.exit_code, "unchanged" in same.stdout) == (Status.DONE, True)
    first, later = json.loads(run(working, "history", "-o", "json").stdout)["records"]
    # What it covers is held since the first: retention counts from then.
    assert (later["since"], later["at"] > first["at"]) == (first["at"], True)


@pytest.mark.any_broker
def test_extend_never_shortens(working: Team) -> None:
    def extend(*arguments: str) -> Any:  # noqa: ANN401 - click's
        group = ("--group", working.group, "--owner", "alice")
        return run(working, "extend", "@all", *group, *arguments)

    assert "place it, or name its owner" in extend("--for", "1h").stderr
    placed = pause(working, "@all", "--for", "1h", "-o", "json")
    (first,) = json.loads(placed.stdout)["held"]
    assert "which is later" in extend("--for", "30m").stderr
    longer = extend("--for", "2h", "-o", "json")
    (one,) = json.loads(longer.stdout)["extended"]
    assert (longer.exit_code, one["reason"]) == (Status.DONE, "x")
    assert round(one["expires_at"] - one["at"]) == 7200
    assert (one["id"], one["since"]) == (first["id"], first["at"])
    pause(working, "@all", "--replace")
    assert "until it is resumed" in extend("--for", "9h").stderr


@pytest.mark.any_broker
def test_where_and_as_whom_it_was_placed(
    working: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers everybody is root: the default owner has the host's name."""
    monkeypatch.setattr("socket.gethostname", lambda: "build7")
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    group = ("--group", working.group)
    ended = run(working, "pause", "@all", *group, "--reason", "x", "-o", "json")
    (one,) = json.loads(ended.stdout)["held"]
    assert (one["owner"], one["host"]) == ("root@build7", "build7")
    shown = json.loads(run(working, "status", *group, "-o", "json").stdout)
    assert [(one["id"], one["host"])] == [
        (hold["id"], hold["host"]) for hold in shown["holds"]
    ]
    monkeypatch.setenv("SAFECONSUMER_OWNER", "alice")
    in_vain = run(working, "resume", "@all", *group)
    assert "was not held: @all operator:alice" in in_vain.stdout
    assert "operator:root@build7" in in_vain.stdout
    assert in_vain.exit_code == Status.FAILED
    ended = run(working, "resume", "--id", one["id"], *group)
    assert "lifted @all operator:root@build7" in ended.stdout
    assert held(working) == []


@pytest.mark.any_broker
def test_resume_all_of_one_owner(working: Team) -> None:
    """And of nobody else; by a range placed, one by one."""
    group = ("--group", working.group)
    pause(working, f"{working.topic}:0-1,3", "re:ord.*")
    run(working, "pause", "@all", *group, "--reason", "x", "--owner", "bob")
    assert len(held(working)) == 5
    ended = run(working, "resume", "--all", "--owner", "alice", *group)
    lifted = re.findall(r"^lifted ", ended.stdout, re.MULTILINE)
    assert (ended.exit_code, len(lifted)) == (Status.DONE, 4)
    assert held(working) == [("@all", "bob")]
    ended = run(working, "resume", "--all", "--owner", "alice", *group)
    assert ended.exit_code == Status.FAILED
    assert "there are holds by operator:bob" in ended.stderr


@pytest.mark.any_broker
def test_the_audit_reads_the_topics_as_the_history_tells(working: Team) -> None:
    """With clients and a decoder of its own; what was held long ago counts, too."""
    group = ("--group", working.group)
    pause(working, working.topic, "--for", "1h")
    run(working, "extend", working.topic, "--for", "2h", "--owner", "alice", *group)
    pause(working, "re:ord.*", "--for", "3h")
    run(working, "resume", working.topic, "--owner", "alice", *group)
    read = read_control(working.broker.client_config, working.settings.topics)
    told = run(working, "history", "-o", "json").stdout
    there = from_history("history", told)
    assert [
        (one.scope, one.holder, one.end - one.start > 1e4) for one in read.spans
    ] == [
        (working.topic, "operator:alice", False),
        ("re:ord.*", "operator:alice", True),
    ]
    assert read.spans == there.spans
    assert read.trouble == there.trouble == ""
    assert abs(read.since - there.since) < 60
    missing = ("--control", *where(working), "--topic-prefix", "none-")
    told = audit(__file__, *missing).stderr
    assert "topics do not exist: none-holds_ops, none-holds_group" in told


@pytest.mark.any_broker
@pytest.mark.contract("S5")
def test_the_audit_finds_whoever_does_not_obey(team: Team, tmp_path: Path) -> None:
    """
    G2: what a group was told stands in the control topics, live or as history.

    Of a topic with its producers' times nothing shows whose clock is right.
    """
    logged = f"{team.topic}-logged"
    team.create(logged, {"message.timestamp.type": "LogAppendTime"})
    pause(team, "@all", "--future")
    obeys, leaks = (str(tmp_path / name) for name in ("obeys", "leaks"))
    consumer = team.member("a", journal=obeys)
    consumer.subscribe([team.topic, logged])
    poll_until(consumer, lambda: len(consumer.paused()) == 5)
    consumer.close()
    produce(team.producer, logged, 1)
    plain = team.member("b", control=None, journal=leaks)
    plain.subscribe([team.topic, logged])
    got: dict[Any, list[int]] = {}
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
        assert ended.stdout.count("nothing shows that the clock of b") == 4


def audit(*arguments: str) -> Any:  # noqa: ANN401 - click's
    return CliRunner().invoke(safeconsumer, ["audit", *arguments])


@pytest.mark.any_broker
def test_history_tells_what_was_done(working: Team) -> None:
    """Not lifts that never were; and an extension is no second pause."""
    pause(working, working.topic, "--for", "1h")
    group = ("--group", working.group)
    run(working, "resume", working.topic, "--owner", "carol", *group)
    run(working, "extend", working.topic, "--for", "2h", "--owner", "alice", *group)
    pause(working, working.topic, "--for", "3h", "--replace")
    for _ in range(2):
        run(working, "resume", working.topic, "--owner", "alice", *group)
    past = json.loads(run(working, "history", "-o", "json").stdout)["records"]
    assert [(one["what"], one["owner"]) for one in past] == [
        ("held", "alice"),
        ("extended", "alice"),
        ("held again", "alice"),
        ("lifted", "alice"),
    ]
    shown = run(working, "history", *group).stdout
    assert [re.split(r"  +", line)[1] for line in shown.splitlines()] == [
        one["what"] for one in past
    ]


@pytest.mark.any_broker
def test_pause_and_wait_then_resume_and_wait(working: Team) -> None:
    ended = pause(working, working.topic, "--wait", "20s")
    assert ended.exit_code == Status.DONE
    assert "1 of 1 members quiet, after " in ended.stdout
    group = ("--group", working.group)
    not_yet = run(working, "wait", "flowing", *group, "--timeout", "0.1s")
    assert not_yet.exit_code == Status.FAILED
    assert f"held: {working.topic} by alice" in not_yet.stderr
    run(working, "resume", working.topic, *group, "--owner", "alice")
    flows = run(working, "wait", "flowing", *group, "--timeout", "20s", "-o", "json")
    assert flows.exit_code == Status.DONE
    assert json.loads(flows.stdout)["sentence"] == f"flowing: {working.topic}:0-3"


@pytest.mark.any_broker
def test_a_wait_outlives_an_outage(
    working: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for that long that somebody waits; a refusal ends it at once."""
    pause(working, "@all")
    looking, looks = Operator.look, [None, KafkaTimeoutError("x"), ConnectionError()]
    with Operator(working.broker.client_config, working.settings) as one:
        seen = one.look(working.group)

    def interrupted(self: Operator, group: str, **options: bool) -> Any:  # noqa: ANN401 - look's
        trouble = looks.pop(0) if looks else None
        if trouble is not None:
            raise trouble
        return seen if looks else looking(self, group, **options)

    monkeypatch.setattr(Operator, "look", interrupted)
    arguments = ("wait", "flowing", "--group", working.group, "--timeout")
    ended = run(working, *arguments, "3s")
    assert (looks, ended.exit_code) == ([], Status.FAILED)
    assert "held: @all by alice" in ended.stderr
    looks[:] = [None, *(KafkaTimeoutError("x") for _ in range(100))]
    ended = run(working, *arguments, "5s")
    assert (len(looks) > 50, ended.exit_code) == (True, Status.UNREACHABLE)
    looks[:] = [None, TopicAuthorizationFailedError("x")]
    assert run(working, *arguments, "60s").exit_code == Status.REFUSED


@pytest.mark.any_broker
def test_watching_outlives_an_outage(
    working: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is when somebody watches: what is unknown is said, and it goes on."""
    pauses: list[float] = []

    def interrupt(seconds: float) -> None:
        pauses.append(seconds)
        monkeypatch.undo()
        if len(pauses) > 1:
            raise KeyboardInterrupt
        monkeypatch.setattr("safeconsumer.cli.watching.time.sleep", interrupt)

    def silent(*_: object, **__: object) -> Any:  # noqa: ANN401 - look's
        message = "x"
        raise KafkaTimeoutError(message)

    monkeypatch.setattr(Operator, "look", silent)
    monkeypatch.setattr("safeconsumer.cli.watching.time.sleep", interrupt)
    ended = run(working, "status", "--group", working.group, "--watch")
    assert ended.exit_code == Status.INTERRUPTED
    first, second = ended.stdout.split("every second", 2)[1:]
    assert "unknown, no answer from the broker: KafkaTimeoutError: x" in first
    assert f"group {working.group}: Stable, 1 member" in second


@pytest.mark.any_broker
def test_what_waits_since_the_hold(working: Team) -> None:
    pause(working, f"{working.topic}:0-1", "--wait", "60s")
    working.produce(7)
    shown = run(working, "status", "--group", working.group).stdout
    assert re.search(rf"{working.topic}:0 .* lag 7 +7 since the hold", shown)
    assert "14 written since the hold" in shown


@pytest.mark.any_broker
def test_all_groups_at_a_glance(working: Team) -> None:
    """Held ones say what does not obey, and when the next hold ends."""
    pause(working, "@all", "--for", "1h", "--wait", "60s")
    run(
        working, "pause", "@all", "--group", f"new-{working.group}", "--future",
        *WHY,
    )  # fmt: skip
    found = json.loads(run(working, "groups", "-o", "json").stdout)
    by_name = {one["group"]: one for one in found}
    own = by_name[working.group]
    assert (own["members"], own["reporting"], own["holds"]) == (1, 1, 1)
    assert (own["words"], own["sentence"]) == ("quiet", "1 of 1 members quiet")
    assert own["next_expiry"] is not None
    assert by_name[f"new-{working.group}"]["state"] == "Dead"
    shown = run(working, "groups").stdout
    assert re.search(
        rf"^{working.group} +Stable +1, 1 report +1 +2", shown, re.MULTILINE
    )


@pytest.mark.any_broker
@pytest.mark.parametrize(("answer", "is_held"), [("n\n", False), ("y\n", True)])
def test_everything_is_asked_for_on_a_terminal(
    working: Team, monkeypatch: pytest.MonkeyPatch, answer: str, *, is_held: bool
) -> None:
    """Elsewhere a script would hang."""
    monkeypatch.setattr("safeconsumer.cli.holding.is_terminal", lambda: True)
    arguments = ("pause", "@all", "--group", working.group, *WHY)
    ended = run(working, *arguments, typed=answer)
    assert "Hold all 4 partitions" in ended.stderr
    assert ended.exit_code == (Status.DONE if is_held else Status.FAILED)
    assert held(working) == ([("@all", "alice")] if is_held else [])


def test_ranges_are_holds_of_their_own() -> None:
    scopes = scopes_of(["a:0-2,5", "b:7", "a:1", "c"], "g")
    assert [*map(str, scopes)] == ["a:0", "a:1", "a:2", "a:5", "b:7", "c"]


def test_ranges_of_a_topic_that_is_called_re() -> None:
    """Without its name twice it is a pattern, which may be a topic's name."""
    scopes = scopes_of(["re:re:0-1,5", "re:0-2", "re:re:7"], "g")
    assert [*map(str, scopes)] == ["re:re:0", "re:re:1", "re:re:5", "re:0-2", "re:re:7"]
    assert [one.covers(("re", 1)) for one in scopes] == [0, 1, 0, 0, 0]
    assert [one.covers(("0-2", 1)) for one in scopes] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    "text",
    ["a:2-1", "a:0-5000", "a:1-", "a:0-٣", f"a:0-{5000 * '9'}", f"a:1-{'9' * 5000}"],
)
def test_bad_ranges(text: str) -> None:
    with pytest.raises(ScopeSyntaxError, match="a:"):
        scopes_of([text], "g")


def test_until_a_time_of_day() -> None:
    """Tomorrow's if today's is over; with a zone or in this machine's."""
    now = datetime(2026, 11, 22, 12, 0).astimezone()
    assert ending._moment("18:30", now) == (now + timedelta(hours=6.5)).timestamp()
    assert ending._moment("11:00", now) == (now + timedelta(hours=23)).timestamp()
    one = datetime(2026, 11, 22, 13, 0, tzinfo=UTC).timestamp()
    for text in ("2026-11-22T13:00Z", "2026-11-22T14:00+01:00"):
        assert ending._moment(text, now) == one


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("evening", "offset"), [("2026-10-24T23:00", 1), ("2026-03-28T23:00", 2)]
)
def test_a_time_of_day_behind_a_change_of_clocks(evening: str, offset: int) -> None:
    """It is the time that clocks on the wall will show."""
    now = datetime.fromisoformat(evening).astimezone()
    found = datetime.fromtimestamp(ending._moment("06:00", now)).astimezone()
    assert (found.hour, found.day - now.day) == (6, 1)
    assert found.utcoffset() == timedelta(hours=offset)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text", ["soon", "25:00", "2026-13-01T00:00", "", "9999-12-31T23:59-14:00"]
)
def test_until_no_time(text: str) -> None:
    with pytest.raises(HoldSettingError, match="is not a time"):
        ending.ending_of(None, text)


def test_until_what_is_over_by_the_brokers_clock() -> None:
    until = ending.ending_of(None, "2026-11-22T13:00Z")
    at = datetime(2026, 11, 22, 13, 0, tzinfo=UTC).timestamp()
    assert until.seconds_from(at - 60) == 60
    with pytest.raises(HoldSettingError, match="passed, by the broker's clock"):
        until.seconds_from(at)
    with pytest.raises(HoldSettingError, match="passed, by this machine's clock"):
        until.seconds_from(None)
