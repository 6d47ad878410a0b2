"""The commands for operators, as they are typed: what they print and how they end."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner, Result
from kafka.admin import KafkaAdminClient
from kafka.errors import TopicAuthorizationFailedError

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.group.operator import Operator
from safeconsumer.holds.hold import OUTAGE, WorkerOwner
from tests.harness.group.operating import run, where
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for

pytestmark = [pytest.mark.any_broker, pytest.mark.usefixtures("time_to_look")]


def test_partitions_of_a_topic_that_is_called_re(kafka_broker: Any) -> None:  # noqa: ANN401 - any kind
    """Each has a scope; whoever writes a pattern in its place is told of that."""
    with Team(kafka_broker, partitions=3, topic="re") as team:
        consumer = team.subscribed("billing-1")
        team.settled(consumer)
        group = ("--group", team.group)
        with Polled(consumer):
            wrong = run(team, "pause", "re:1", *group, "--reason", "x")
            assert wrong.exit_code == Status.USAGE
            assert "of the topic re, partitions are re:re:1" in wrong.stderr
            held = run(team, "pause", "re:re:1-2", *group, "--reason", "x", "--wait")
            assert (held.exit_code, held.stderr) == (Status.DONE, "")
            shown = json.loads(run(team, "status", *group, "--json").stdout)
            assert [one["scope"] for one in shown["holds"]] == ["re:re:1", "re:re:2"]
            lifted = run(team, "resume", "re:re:2", *group)
            assert (lifted.exit_code, "resumed re:re:2" in lifted.stdout) == (0, True)
        poll_until(consumer, lambda: consumer.paused() == {team.partitions[1]})


def test_status_says_what_workers_have_paused(team: Team) -> None:
    """A hold of a worker's own for an outage: who, which, why, until when."""
    consumer = team.subscribed("billing-1")
    team.settled(consumer)
    with Polled(consumer):
        reason = "the bank is down"
        whose = WorkerOwner(OUTAGE)
        consumer.pause(team.topic, owner=whose, reason=reason, for_=3600)
        wait_for(lambda: "4 of 4 quiet" in told(team), "a report of it")
        shown = told(team)
        assert "paused by members' own workers" in shown
        line = f"  billing-1  {team.topic} held by worker:outage, since 2"
        assert line in shown
        assert f"because {reason}, until 2" in shown
        document = json.loads(told(team, "--json"))
        assert reason in document["reports"][0]["outages"][0]
        consumer.resume_all(OUTAGE)
        wait_for(lambda: "0 of 4 quiet" in told(team), "a report that it is over")
        assert "own workers" not in told(team)


def told(team: Team, *more: str) -> str:
    return run(team, "status", "--group", team.group, *more).stdout


def test_resume_names_what_still_holds(team: Team) -> None:
    """Two owners never touch each other's holds."""
    consumer = team.subscribed()
    got = team.settled(consumer)
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    consumer.commit()
    team.operator_holds(team.topic, owner="bob")
    group = ("--group", team.group)
    run(team, "pause", "@all", *group, "--reason", "x", "--owner", "alice")
    ended = run(team, "resume", "@all", *group, "--owner", "alice")
    assert "still held" in ended.stdout
    assert f"{team.topic}  operator:bob" in ended.stdout
    assert "operator:alice  since" not in ended.stdout


def test_lifting_a_members_own_group_hold(team: Team) -> None:
    """The member that placed it may be gone for good."""
    consumer = team.subscribed()
    team.settled(consumer)
    consumer.pause_group(team.topic, reason="stuck")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAFECONSUMER_OWNER", "alice")  # the tutorial's; it placed nothing
        ended = run(team, "resume", team.topic, "--group", team.group, "--from-group")
    assert f"resumed {team.topic} group:app" in ended.stdout
    poll_until(consumer, lambda: not consumer.paused())


def test_wait_does_not_call_quiet_what_nobody_holds(team: Team) -> None:
    """Also not once the hold's time is over."""
    consumer = team.subscribed()
    team.settled(consumer)
    arguments = ("wait", "--group", team.group, "--quiet", "--timeout", "20s")
    found: list[Result] = []

    def is_refused() -> bool:
        found.append(run(team, *arguments))
        return found[-1].exit_code != Status.DONE

    with Polled(consumer):
        is_refused()
        team.operator_holds(team.topic, for_=0.2)
        wait_for(is_refused, "the end of the hold", 20, pause=0)
    for ended in (found[0], found[-1]):
        assert (ended.exit_code, ended.stdout) == (Status.FAILED, "")
        assert "is held: pause it first" in ended.stderr


@pytest.mark.parametrize(
    "command", [("wait", "--quiet"), ("resume", "@all"), ("history",), ("status",)]
)
def test_an_unknown_group_is_refused(team: Team, command: tuple[str, ...]) -> None:
    """A typing error must not look like a group that is quiet, or resumed."""
    team.settled(team.subscribed())
    status, line = bad(team, *command, "--group", f"{team.group}x")
    assert (status, f"mean {team.group} " in line.replace("?", " ")) == (
        Status.USAGE,
        True,
    )
    ended = run(team, "history")
    assert (ended.stdout, ended.stderr) == ("nothing\n", "")


def test_doctor_does_not_know_the_group(team: Team) -> None:
    ended = run(team, "doctor", "--group", f"{team.group}x")
    assert (ended.exit_code, "no group" in ended.stdout) == (Status.FAILED, True)


def test_a_user_without_a_name_is_asked_for_one(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in containers that run under a number."""

    def nobody() -> str:
        message = "getpwuid(): uid not found: 12345"
        raise KeyError(message)

    monkeypatch.setattr("getpass.getuser", nobody)
    status, line = bad(team, "pause", "@all", "--group", team.group, "--reason", "x")
    assert (status, "--owner" in line) == (Status.USAGE, True)


def bad(team: Team, *arguments: str) -> tuple[int, str]:
    ended = run(team, *arguments)
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    return ended.exit_code, ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("orders",), "no group"),
        (("orders", "a b", "--new-group"), "is not a topic name"),
        (("orders:x",), "write it as topic:number"),
        (("orders*",), "; a pattern is re:orders.*"),
        (("re:(",), "not an RE2 pattern"),
        (("re:(a)\\1",), "not an RE2 pattern"),
        (("orders", "--for", "0s"), "is not longer than 0"),
        (("orders", "--for", "soon"), "not a duration"),
        (("orders", "--until", "9999-12-31T23:59"), "a century away"),
        (("orders", "--until", "9999-12-31T23:59-12:00"), "is not a time"),
        (("orders", "--owner", "operator:x"), "operator"),
        (("orders", "--reason", "bell\x07"), "control characters"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    team: Team, arguments: tuple[str, ...], said: str
) -> None:
    status, line = bad(
        team, "pause", "--group", team.group, "--reason", "x", *arguments
    )
    assert (status, said in line) == (Status.USAGE, True), line
    ended = run(team, "history")
    assert (ended.stdout, ended.stderr) == ("nothing\n", "")


def test_what_was_written_is_said_though_it_cannot_be_read_back(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says both; the status is that of what went wrong."""
    looking = Operator.look

    def refuse(self: Operator, group: str, **options: bool) -> Any:  # noqa: ANN401 - look's
        if any(one.hold is not None for one in self.records()):
            raise TopicAuthorizationFailedError(team.settings.operator_topic)
        return looking(self, group, **options)

    monkeypatch.setattr(Operator, "look", refuse)
    asked = ["@all", "--group", team.group, "--reason", "x", "--new-group", "--wait"]
    ended = run(team, "pause", *asked)
    assert ended.exit_code == Status.REFUSED
    assert ended.stderr.count("\n") == 1
    assert "held and acknowledged: @all; but" in ended.stderr
    assert "the broker refuses" in ended.stderr


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize("command", ["pause", "extend", "resume"])
def test_what_was_written_is_said_though_it_cannot_be_printed(
    team: Team, command: str, as_json: tuple[str, ...]
) -> None:
    """A full disk is told on stderr, beside that the hold is placed all the same."""
    asked = [command, "@all", "--group", team.group, "--owner", "alice", *as_json]
    asked += {
        "pause": ["--reason", "x", "--new-group"],
        "extend": ["--for", "2h"],
        "resume": [],
    }[command]
    if command != "pause":
        team.operator_holds("@all", owner="alice", for_=60)
    with Path("/dev/full").open("w") as disk:
        ended = in_a_process(team, asked, stdout=disk)
    done = {"pause": "held", "extend": "extended", "resume": "resumed"}[command]
    line = (
        f"safeconsumer: {done} and acknowledged: @all; but the rest is not shown: "
        "this system refuses: [Errno 28] No space left on device\n"
    )
    assert (ended.returncode, ended.stderr) == (Status.FAILED, line)


@pytest.mark.parametrize("command", ["pause", "status", "groups", "resume"])
def test_without_any_output_a_command_does_what_it_should(
    team: Team, command: str
) -> None:
    """As programs are started that nobody listens to: no stdin, no stdout."""
    asked = {
        "pause": ["@all", "--reason", "x", "--new-group", "--group", team.group],
        "groups": [],
    }.get(command, ["--group", team.group])
    asked += ["@all"] if command == "resume" else []
    if command != "pause":
        team.operator_holds("@all", owner="alice")
    owner = ["--owner", "alice"] if command in {"pause", "resume"} else []
    ended = in_a_process(
        team, [command, *asked, *owner], first="import os; os.close(0); os.close(1); "
    )
    assert (ended.returncode, ended.stderr) == (Status.DONE, "")
    past = json.loads(run(team, "history", "--group", team.group, "--json").stdout)
    assert past[-1]["is_held"] == (command != "resume")


def in_a_process(
    team: Team, arguments: list[str], *, stdout: IO[str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell does: streams are what they are there."""
    # Descriptors are closed before Python looks at its streams.
    code = "import sys; from safeconsumer.cli.main import main; main()"
    program = [sys.executable, "-c", code, *arguments, *where(team)]
    if first:
        closing = f"{first}os.execv(sys.executable, sys.argv[1:])"
        program = [sys.executable, "-c", f"import sys; {closing}", *program]
    return subprocess.run(  # noqa: S603 - our own code
        program,
        stdout=stdout or subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_resume_is_written_though_nothing_can_be_read(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lifts must not stay for want of a look at committed offsets."""
    team.operator_holds(team.topic)
    with monkeypatch.context() as patch:
        for name in ("standing", "group"):
            patch.setattr(Operator, name, refusing)
        ended = run(
            team, "resume", team.topic, "--group", team.group, "--owner", "alice"
        )
    assert ended.exit_code == Status.REFUSED
    assert f"resumed and acknowledged: {team.topic}; but" in ended.stderr
    past = json.loads(run(team, "history", "--group", team.group, "--json").stdout)
    assert [one["is_held"] for one in past] == [True, False]


def refusing(*_: object) -> Any:  # noqa: ANN401 - of several
    message = "orders"
    raise TopicAuthorizationFailedError(message)


def test_an_unfit_topic_is_refused(team: Team) -> None:
    lossy = f"lossy-{team.group}"
    team.create(lossy, {"cleanup.policy": "delete"})
    team.settings = team.with_settings(operator_topic=lossy)
    status, line = bad(
        team, "pause", "@all", "--group", team.group, "--reason", "x", "--new-group"
    )
    assert (status, "cleanup.policy=compact" in line) == (Status.REFUSED, True)


def test_init_makes_mends_and_leaves_alone(team: Team) -> None:
    """It may be run again at any time."""
    team.settings = team.with_settings(
        operator_topic=f"new-{team.group}", group_topic=f"lossy-{team.group}"
    )
    team.create(team.settings.group_topic, {"cleanup.policy": "delete"})
    first = run(team, "control", "init")
    assert first.exit_code == Status.DONE
    assert f"created new-{team.group}" in first.stdout
    assert "set cleanup.policy, " in first.stdout
    may = "User:MEMBER --operation Read --operation DescribeConfigs"
    assert f"{may} --topic new-{team.group}" in first.stdout
    second = run(team, "control", "init")
    assert [line.split()[0] for line in second.stdout.splitlines()[:3]] == [
        "unchanged"
    ] * 3
    placed = run(
        team, "pause", "@all", "--group", team.group, "--reason", "x", "--new-group"
    )
    assert placed.exit_code == Status.DONE


def test_a_topic_with_several_partitions_is_not_taken_for_its_own(team: Team) -> None:
    """Kafka takes no partition away: nothing is changed, and doctor says the same."""
    wide, new = f"wide-{team.group}", f"new-{team.group}"
    team.broker.create_topic(wide, 3)
    team.settings = team.with_settings(operator_topic=new, group_topic=wide)
    status, line = bad(team, "control", "init")
    assert (status, "must have 1: delete it" in line) == (Status.REFUSED, True)
    ended = run(team, "doctor")
    assert f"there is no topic {new}" in ended.stdout
    assert "must have 1: delete it" in ended.stdout


def test_one_cause_is_one_problem(team: Team) -> None:
    """Without control topics nothing else can be right or wrong."""
    names = ("operator_topic", "group_topic", "status_topic")
    team.settings = team.with_settings(**{one: f"{one}-{team.group}" for one in names})
    ended = run(team, "doctor", "--group", team.group)
    assert ended.exit_code == Status.FAILED
    assert ended.stdout.count("PROBLEM") == 1


def test_doctor_finds_what_is_wrong(team: Team) -> None:
    """And says what to do; the status tells a script."""
    plain = team.subscribed("plain", control=None)
    poll_until(plain, team.has_all(plain))
    team.write_raw(
        team.settings.operator_topic,
        f"2\0{team.group}\0x\0new:kind:y".encode(),
        b'{"v":2}',
    ).get(10)
    with Polled(plain):
        ended = run(team, "doctor", "--group", team.group)
    assert ended.exit_code == Status.FAILED
    assert "settings are right" in ended.stdout
    assert "new:kind:y operator:x" in ended.stdout
    assert "of 1 member of" in ended.stdout
    assert "plain clients obey no hold" in ended.stdout


def test_doctor_is_content(team: Team) -> None:
    consumer = team.subscribed()
    team.settled(consumer)
    with Polled(consumer):
        with Operator(team.broker.client_config, team.settings) as operator:
            wait_for(
                lambda: any(
                    one.generation is not None and one.generation >= 1
                    for one in operator.look(team.group).reports
                ),
                "its report of the join",
            )
        ended = run(team, "doctor", "--group", team.group, "--json")
    found = json.loads(ended.stdout)
    assert {one["rank"] for one in found} <= {"ok", "note"}
    assert ended.exit_code == Status.DONE


def test_without_the_status_topic_the_rest_is_known(team: Team) -> None:
    """Holds are; who obeys is not, and nobody is called a plain client for that."""
    consumer = team.subscribed("billing-1")
    team.settled(consumer)
    team.operator_holds(team.topic)
    missing = ("--status-topic", f"{team.topic}-none")

    def told(*command: str) -> Result:
        return CliRunner().invoke(safeconsumer, [*command, *where(team), *missing])

    with Polled(consumer):
        looked = told("doctor", "--group", team.group)
        status = told("status", "--group", team.group)
        groups = told("groups")
        waited = told("wait", "quiet", "--group", team.group, "--timeout", "0s")
    assert looked.exit_code == Status.FAILED
    assert "it is unknown who obeys" in looked.stdout
    assert "on the topics: 1 hold" in looked.stdout
    assert f"{team.topic}  operator:alice" in status.stdout
    assert "reports cannot be read" in waited.stderr
    for one in (looked, status, groups, waited):
        assert "plain client" not in one.output


def test_doctor_tells_what_it_found_before_the_cluster_went_away(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by the status what kept it from the rest."""
    monkeypatch.setattr(Operator, "standing", refusing)
    for form in ((), ("--json",)):
        ended = run(team, "doctor", *form)
        assert ended.exit_code == Status.REFUSED
        assert "settings are right" in ended.stdout
        assert "the rest could not be checked: the broker refuses" in ended.stdout
        assert ended.stderr.count("\n") == 1
    assert json.loads(ended.stdout)[-1]["rank"] == "PROBLEM"


def test_a_topic_of_something_else_has_no_holds(team: Team) -> None:
    """Whoever mistypes the operators' topic is not told that nothing is held."""
    consumer = team.subscribed("billing-1")
    team.settled(consumer)
    team.operator_holds("@all")
    other = f"{team.topic}-other"
    with KafkaAdminClient(**team.broker.client_config) as admin:
        admin.create_topics({other: {"num_partitions": 1}}, wait_for_metadata=True)

    def told(*command: str) -> Result:
        arguments = [*command, *where(team), "--operator-topic", other]
        return CliRunner().invoke(safeconsumer, arguments)

    with Polled(consumer):
        status = told("status", "--group", team.group)
        groups = told("groups")
        waited = told("wait", "quiet", "--group", team.group, "--timeout", "0s")
    for one in (status, groups, waited):
        assert f"{other} has cleanup.policy=delete" in one.output
    assert re.search(rf"^{team.group} .* unknown", groups.stdout, re.MULTILINE)
    assert waited.exit_code == Status.FAILED


def test_watching_ends_with_an_interrupt(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One JSON document a line, then status 130."""

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    team.operator_holds("@all")
    monkeypatch.setattr("safeconsumer.cli.watching.time.sleep", interrupt)
    ended = run(team, "status", "--group", team.group, "--watch", "--json")
    assert ended.exit_code == Status.INTERRUPTED
    (line,) = ended.stdout.splitlines()
    assert len(json.loads(line)["holds"]) == 1
