"""Operators' commands keep a journal, so that an audit can judge what a group did (G2)."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafka.producer.producer_batch import ProducerBatch

from safeconsumer import ControlWriteError, SafeConsumer
from safeconsumer.audit.journal import read
from safeconsumer.audit.shared import SharedJournal
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.errors import JournalError
from safeconsumer.group.operator import OPERATOR, Operator
from safeconsumer.group.publisher import changes, new_hold
from safeconsumer.testing import EmbeddedBroker
from tests.harness.group.operating import fill_the_disk, run
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.polling import poll_until

any_broker = pytest.mark.any_broker
embedded_broker = pytest.mark.embedded_broker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ops.journal"


def told(path: Path) -> list[tuple[str, str]]:
    return [(one.event, one["scope"]) for one in read(path).entries]


def audit(folder: Path, *more: str) -> Result:
    return CliRunner().invoke(
        safeconsumer, ["audit", str(folder), "--clock-skew", "0.2", *more]
    )


# ---------------------------------------------------------------- a group that obeys


def obeying(team: Team, folder: Path, operator: Path | None) -> None:
    """Have a member join under a hold, which is lifted; all of them keep journals."""
    keep = () if operator is None else ("--journal", str(operator))
    group = ("--group", team.group, "--owner", "eve")
    first = team.subscribed("a", journal=folder)
    got = team.settled(first)
    poll_until(first, lambda: sum(map(len, got.values())) == 20, got=got)
    first.commit()
    with Polled(first):
        held = run(team, "pause", team.topic, *group, "--reason", "x", *keep)
        assert held.exit_code == Status.DONE, held.output
        second = team.subscribed("b", journal=folder)
        poll_until(
            second, lambda: bool(second.assignment()) and team.is_ungated(second)
        )
        team.produce(1)
        assert second.paused()
        with Polled(second):
            lifted = run(team, "resume", team.topic, *group, *keep)
            assert lifted.exit_code == Status.DONE, lifted.output
        poll_until(second, lambda: not second.paused())
    first.close()
    second.close()


@any_broker
def test_a_group_under_operators_holds_can_be_judged(
    team: Team, tmp_path: Path
) -> None:
    """With the commands' journal it is clean; without, G2 cannot be told."""
    obeying(team, tmp_path, tmp_path / "ops.journal")
    done = audit(tmp_path)
    assert (done.exit_code, done.stdout.splitlines()[-1][:5]) == (0, "clean"), (
        done.output
    )
    (tmp_path / "ops.journal").rename(tmp_path / "ops.left")
    done = audit(tmp_path)
    assert done.exit_code == 2
    assert (
        "could not be judged: no journal says when operator:eve placed" in done.stdout
    )


@any_broker
def test_who_does_not_obey_is_found(team: Team, tmp_path: Path) -> None:
    """A member that knows nothing of operators joins under a hold."""
    journal = tmp_path / "ops.journal"
    group = ("--group", team.group, "--owner", "eve", "--journal", str(journal))
    held = run(team, "pause", team.topic, *group, "--reason", "x", "--new-group")
    assert held.exit_code == Status.DONE, held.output
    plain = SafeConsumer(
        team.topic,
        **team.broker.client_config,
        group_id=team.group,
        auto_offset_reset="earliest",
        journal=tmp_path,
    )
    got: dict[Any, list[int]] = {}
    poll_until(plain, lambda: sum(map(len, got.values())) == 20, got=got)
    plain.close()
    # All clocks are this machine's, and a member can join sooner than 0.2 s after.
    done = audit(tmp_path, "--clock-skew", "0.01")
    assert done.exit_code == 1
    assert f"delivered though {team.topic} was held for the group before" in done.stdout


@embedded_broker
@pytest.mark.parametrize(
    ("answered", "written"), [(-1, None), (1_700_000_000_123, 1_700_000_000.123)]
)
def test_only_a_brokers_time_is_written_down_as_one(
    team: Team,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answered: int,
    written: float | None,
) -> None:
    """Where a topic has its producers' times kafka-python answers with this host's."""
    upstreams = ProducerBatch.done

    def done(self: Any, **said: Any) -> Any:  # noqa: ANN401 - upstream's
        return upstreams(self, **{**said, "timestamp_ms": answered})

    monkeypatch.setattr(ProducerBatch, "done", done)
    with operator(team, path) as one:
        one.write(OPERATOR, changes(team.group, "eve", ["a"], new_hold("x", 60.0)))
    asked, hold = read(path).entries
    assert (hold["written"], "written" in hold.fields) == (written, True)
    assert hold["offset"] == 0
    assert hold["until"] - 60 == pytest.approx(written or hold.at, abs=5)
    # Killed in between it would be known until when it may stand.
    assert asked["until"] - asked.at == pytest.approx(60, abs=5)


@any_broker
def test_what_commands_write_down(team: Team, path: Path) -> None:
    """Each call with what came of it; what is only looked at, nothing."""
    group = ("--group", team.group, "--owner", "eve", "--journal", str(path))
    why = ("--reason", "x", "--new-group", "--for", "1h")
    run(team, "pause", "orders", "other", *group, *why, "--future", "--dry-run")
    assert not path.exists()
    run(team, "pause", "orders", "other", *group, *why, "--future")
    run(team, "extend", "orders", *group, "--for", "2h")
    run(team, "resume", "orders", *group)
    assert told(path) == [
        *(("group-asked", "orders"), ("group-asked", "other")),
        *(("group-hold", "orders"), ("group-hold", "other")),
        *(("group-asked", "orders"), ("group-hold", "orders")),
        *(("group-lift", "orders"), ("group-lifted", "orders")),
    ]
    hold, longer = (read(path).entries[n] for n in (2, 5))
    assert hold["until"] == pytest.approx(hold["written"] + 3600, abs=0.01)
    assert longer["until"] == pytest.approx(longer["written"] + 7200, abs=0.01)
    assert (hold["group"], hold["owner"], hold["source"]) == (
        *(team.group, "eve", "operator"),
    )


@any_broker
def test_without_a_journal_that_can_be_written_nothing_is_changed(
    team: Team, tmp_path: Path
) -> None:
    group = ("--group", team.group, "--owner", "eve", "--new-group", "--future")
    asked = ("pause", "orders", *group, "--reason", "x")
    for name, why in (("no/ops.journal", "cannot be written"), ("ops", "ends in")):
        keep = ("--journal", str(tmp_path / name))
        for dry in ((), ("--dry-run",)):
            done = run(team, *asked, *keep, *dry)
            assert (done.exit_code, why in done.stderr) == (Status.USAGE, True)
    with Operator(team.broker.client_config, team.settings) as operator:
        assert operator.standing() == ()


@any_broker
def test_what_was_done_and_cannot_be_written_down_is_said(
    team: Team, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held; and no audit will be sure of it."""
    fill_the_disk(monkeypatch)
    group = ("--group", team.group, "--owner", "eve", "--new-group", "--future")
    keep = ("--journal", str(path))
    done = run(team, "pause", "orders", *group, "--reason", "x", *keep)
    assert (done.exit_code, "held\n" in done.stdout) == (Status.FAILED, True)
    assert "could not be journaled: the disk is full" in done.stderr
    assert told(path) == [("group-asked", "orders")]


# ---------------------------------------------------------------- where it goes wrong


def operator(team: Team, path: Path) -> Operator:
    return Operator(
        team.broker.client_config, team.settings, journal=SharedJournal(path)
    )


@embedded_broker
def test_of_what_was_refused_and_what_was_not(team: Team, path: Path) -> None:
    """A pause of many scopes that failed half-way says of each what came of it."""
    scopes = [f"orders:{number}" for number in range(300)]
    team.writer.partitions_for(team.settings.operator_topic)
    wanted = changes(team.group, "eve", scopes, new_hold("x", None))
    with operator(team, path) as here:
        here.write(OPERATOR, changes(team.group, "eve", ["warm"], None))
        team.broker.fail("Produce", "POLICY_VIOLATION")
        with pytest.raises(ControlWriteError) as failed:
            here.write(OPERATOR, wanted)
    said = told(path)[2:]
    done = {one.change.key.scope for one in failed.value.acknowledged}
    assert said[:300] == [("group-asked", one) for one in scopes]
    assert {scope for event, scope in said if event == "group-hold"} == done
    refused = {scope for event, scope in said if event == "group-refused"}
    assert (done | refused, done & refused) == (set(scopes), set())
    assert 0 < len(done) == len(standing(team)) < 300
    named, kept = str(failed.value).split(" could not be written")
    assert {*named.split(", ")} == refused
    kept = kept.partition("acknowledged: ")[2]
    assert {*kept.removesuffix(". Running it again is safe").split(", ")} == done


@embedded_broker
@pytest.mark.parametrize("is_placing", [True, False])
def test_of_what_nobody_knows_nothing_is_said_after_it_was_asked(
    team: Team, path: Path, monkeypatch: pytest.MonkeyPatch, *, is_placing: bool
) -> None:
    """A broker that was frozen may take it up later; as where a command is killed."""
    hold = new_hold("x", None) if is_placing else None
    said = "it may still be written later, so check status"
    with operator(team, path) as here:
        here.write(OPERATOR, changes(team.group, "eve", ["warm"], None))
        monkeypatch.setattr("safeconsumer.group.operator._WRITE_TIMEOUT", 1.0)
        team.broker.freeze()
        with pytest.raises(ControlWriteError, match=said):
            here.write(OPERATOR, changes(team.group, "eve", ["orders"], hold))
        team.broker.unfreeze()
    event = "group-asked" if is_placing else "group-lift"
    assert told(path)[2:] == [(event, "orders")]


def standing(team: Team) -> list[tuple[str, int | None]]:
    with Operator(team.broker.client_config, team.settings) as here:
        found = [one.hold for one in here.standing() if one.hold is not None]
    return [(str(one.reason), one.ttl_ms) for one in found]


@embedded_broker
def test_another_clusters_journal_is_refused(team: Team, path: Path) -> None:
    """Nothing is changed, and nothing is written into it."""
    wanted = changes(team.group, "eve", ["orders"], new_hold("x", None))
    with operator(team, path) as here:
        here.write(OPERATOR, wanted)
        here.check_journal()
    before = path.read_bytes()
    with EmbeddedBroker() as staging, Team(staging) as other:
        wanted = changes(other.group, "eve", ["orders"], None)
        with operator(other, path) as there:
            for ask in (there.check_journal, lambda: there.write(OPERATOR, wanted)):
                with pytest.raises(JournalError, match="is of the cluster"):
                    ask()
            assert there.standing() == ()
    assert path.read_bytes() == before
    with operator(team, path) as here:
        here.write(OPERATOR, changes(team.group, "eve", ["orders"], None))
    assert len(told(path)) == 4
