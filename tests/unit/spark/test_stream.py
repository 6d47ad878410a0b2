"""Tests a stream's answers to the shim's questions, without Spark."""

import math
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest

from safeconsumer.errors import (
    ClientPropertyError,
    HoldSettingError,
    HookTypeError,
    NotQuietError,
    SparkSetupError,
)
from safeconsumer.spark import offsets
from safeconsumer.spark.bridge import PROTOCOL
from safeconsumer.spark.controller import Controller, ledger
from safeconsumer.spark.opening import Shared
from safeconsumer.spark.queries import Query
from safeconsumer.spark.skipping import SkipRequests
from safeconsumer.spark.stream import Stream
from tests.harness.listing import short
from tests.harness.spark.lab import (
    LATEST,
    START,
    DeciderLab,
    Refused,
    Spark,
    Undecided,
    asked,
)


@pytest.fixture
def lab():
    return DeciderLab()


@pytest.mark.contract("S1", "S2")
def test_pause_and_resume_each_take_effect_in_the_next_batch(lab):
    lab.controller.pause("orders", reason="migration")
    facts = lab.batch(START, LATEST)
    assert offsets.parse(facts["end"]) == {("orders", 0): 5, ("returns", 0): 8}
    assert facts["metric.held"] == "orders:0"
    assert facts["metric.heldLag"] == "4"
    assert lab.controller.resume("orders") == ()
    facts = lab.batch(offsets.parse(facts["end"]), LATEST)
    assert offsets.parse(facts["end"]) == LATEST
    assert facts["metric.held"] == ""


@pytest.mark.contract("S3")
@pytest.mark.parametrize(
    ("held", "end"),
    [
        ("", '{"orders":{"0":9},"returns":{"0":8}}'),
        ("orders", '{"orders":{"0":5},"returns":{"0":8}}'),
    ],
    ids=["unheld", "held"],
)
def test_offsets_of_the_official_source_are_read_and_written_in_its_format(
    lab, held, end
):
    """The offset log has offsets as text, in any order."""
    if held:
        lab.controller.pause(held)
    answer = lab.plan("none", start='{"returns":{"0":5},"orders":{"0":5}}')
    assert answer["end"] == end


@pytest.mark.parametrize(
    ("limit", "held", "is_done"),
    [
        ("none", "", True),
        ("none", "orders", True),
        ("maximum", "", True),
        ("maximum", "orders", False),
        ("other", "", False),
    ],
)
def test_batch_is_planned_in_one_request_unless_the_limiter_has_to_be_called(
    lab, limit, held, is_done
):
    if held:
        lab.controller.pause(held)
    answer = lab.plan(limit)
    assert ("end" in answer, "from" in answer) == (is_done, not is_done)


def test_pause_during_the_planning_of_a_batch_is_obeyed(lab):
    """The holds are read again after the last wait for a broker."""
    facts = lab.batch(START, LATEST, lambda: lab.controller.pause("orders:0"))
    assert offsets.parse(facts["end"])["orders", 0] == 5


@pytest.mark.parametrize("why", ["hold", "trouble", "late"])
def test_new_partition_found_only_by_the_rate_limiter_is_held_at_its_start(lab, why):
    """S1, S4: to apply a rate limit, the official source looks up the partitions again."""
    if why == "hold":
        lab.controller.pause("orders")
    elif why == "trouble":
        lab.elsewhere.trouble = "no broker"
    lab.elsewhere.is_late = why == "late"
    new = ("orders", 1)
    facts = lab.batch(START, LATEST, end={**LATEST, new: 70})
    assert offsets.parse(facts["end"])[new] == 0
    assert offsets.parse(facts["end"])["orders", 0] == 5


def test_unreadable_holds_are_reported_if_everything_is_held_already(lab):
    lab.controller.pause("@all")
    lab.batch(START, LATEST)
    lab.elsewhere.trouble = "no broker"
    lab.batch(START, LATEST)
    lab.batch(START, LATEST)
    (event,) = lab.named("spark_holds_unreadable")
    assert event.as_dict()["reasons"] == ["no broker"]
    lab.elsewhere.trouble = "no right to read"
    lab.batch(START, LATEST)
    assert len(lab.named("spark_holds_unreadable")) == 2


def test_resume_during_the_planning_of_a_batch_waits_for_the_next_batch(lab):
    """The limiter has already been called for this batch, and is not called again."""
    lab.controller.pause("orders")
    facts = lab.batch(START, LATEST, lambda: lab.controller.resume("orders"))
    assert offsets.parse(facts["end"])["orders", 0] == 5


def test_pause_during_the_wait_for_the_control_topics_is_obeyed(lab):
    """Holds placed in this process are read after the holds from the control topics."""
    lab.elsewhere.before_read = lambda: lab.controller.pause("orders")
    assert offsets.parse(lab.plan()["from"]) == {("orders", 0): 9, ("returns", 0): 5}


def test_unreadable_holds_hold_everything_and_are_reported(lab):
    lab.elsewhere.trouble = "no broker"
    facts = lab.batch(START, LATEST)
    assert offsets.parse(facts["end"]) == START
    assert facts["metric.heldBecause"] == "no broker"
    (event,) = lab.named("spark_holds_unreadable")
    assert event.as_dict()["reasons"] == ["no broker"]
    lab.elsewhere.trouble = None
    facts = lab.batch(START, LATEST)
    assert offsets.parse(facts["end"]) == LATEST
    assert "metric.heldBecause" not in facts


def test_unreadable_holds_cannot_be_lifted(lab):
    """The holds count as unreadable as soon as one plan could not read them in time."""
    assert lab.controller.explain("orders") == ()
    lab.elsewhere.is_late = True
    lab.batch(START, LATEST)
    (line,) = lab.controller.explain("orders")
    assert "not in time" in line
    lab.controller.pause("orders")
    (still,) = lab.controller.resume("orders")
    assert still.reason == "not in time"
    with pytest.raises(NotQuietError, match="the holds cannot be read"):
        lab.controller.wait_quiet("orders", timeout=0.0)
    lab.elsewhere.is_late = False
    lab.batch(START, LATEST)
    assert lab.controller.holds() == ()


def test_stream_with_holds_that_become_unreadable_is_not_quiet(lab):
    """S4: the stream is not quiet during its batch, nor after it until everything is held."""
    lab.batch(START, LATEST)
    assert lab.not_quiet() == ""
    lab.elsewhere.trouble = "no broker"
    assert [str(hold.scope) for hold in lab.controller.holds()] == ["@all"]
    assert "a batch that was planned before may still read it" in lab.not_quiet()
    lab.ask("ended")
    assert "the holds cannot be read" in lab.not_quiet()
    lab.controller.pause("@all")
    assert lab.not_quiet() == ""
    lab.controller.resume("@all")
    with pytest.raises(NotQuietError, match="the holds cannot be read"):
        lab.controller.wait_quiet("orders", timeout=0.0)
    lab.elsewhere.trouble = None
    assert lab.not_quiet() == ""


def test_lag_of_the_last_plan_is_reported_while_the_next_plan_is_made(lab):
    """A plan that waits for the broker does not reset the lag to 0."""
    lab.controller.pause("orders")
    end = lab.batch(START, LATEST)["end"]
    assert lab.controller.lag() == {("orders", 0): 4}
    lab.plan("other", start=end)
    assert lab.controller.lag() == {("orders", 0): 4}


def test_other_pattern_may_still_cover_resumed_topics(lab):
    """Two patterns may overlap unless the known topics show that they do not."""
    lab.controller.pause("re:ord.*")
    lab.controller.pause("re:.*s", owner="ops")
    lab.controller.pause("re:billing.*", owner="ops")
    assert len(lab.controller.explain("re:ord.*")) == 3
    lab.batch(START, LATEST)
    assert len(lab.controller.explain("re:ord.*")) == 2
    (still,) = lab.controller.resume("re:ord.*")
    assert (str(still.scope), still.owner) == ("re:.*s", "ops")
    assert lab.batch(START, LATEST)["metric.held"] == "orders:0 returns:0"


def test_handle_of_a_stopped_session_cannot_place_or_list_holds(lab):
    lab.controller.pause("orders")
    lab.controller.is_over = lambda: True
    for ask in (
        lambda: lab.controller.pause("returns"),
        lab.controller.holds,
        lambda: lab.controller.explain("orders"),
        lambda: lab.controller.wait_quiet(timeout=0.0),
    ):
        with pytest.raises(SparkSetupError, match="was stopped"):
            ask()
    assert lab.controller.resume("orders") == ()


def test_each_changed_plan_is_logged_in_one_line(lab):
    lab.batch(START, LATEST)
    lab.controller.pause("orders", owner="alice", reason="migration")
    lab.batch(START, LATEST)
    lab.batch(START, LATEST)
    lab.controller.resume("orders", owner="alice")
    lab.batch(START, LATEST)
    held, free = lab.named("spark_plan_changed")
    assert held.as_dict()["held"] == ["orders:0"]
    assert held.as_dict()["lag_at_plan"] == LATEST["orders", 0] - START["orders", 0]
    assert "orders held by alice" in str(held.as_dict()["because"])
    assert free.as_dict()["held"] == []


def test_deletion_of_a_held_topic_fails_the_query(lab):
    """Lost data fails the query even while the topic is held."""
    lab.controller.pause("orders")
    with pytest.raises(Refused, match=r"orders:0: it is deleted.*failOnDataLoss=false"):
        lab.batch(START, {("returns", 0): 8})
    assert len(lab.named("spark_held_data_lost")) == 1


@pytest.mark.parametrize(
    ("latest", "reason"),
    [({}, "it is deleted"), ({("orders", 0): 2}, "it ends at offset 2, before 5")],
    ids=["gone", "cut"],
)
def test_loss_is_reported_once_without_fail_on_data_loss(latest, reason):
    """The batch of a truncated partition ends at the partition's current end."""
    lab = DeciderLab(fails_on_loss=False)
    lab.controller.pause("orders")
    latest = {**latest, ("returns", 0): 8}
    for _ in range(2):
        assert offsets.parse(lab.batch(START, latest)["end"]) == latest
    (event,) = lab.named("spark_held_data_lost")
    assert reason in str(event)


def test_bad_option_is_refused_but_an_internal_error_leads_to_no_decision(lab):
    with pytest.raises(Refused, match=r"holds\.foo"):
        lab.ask("complete", options="holds.foo=1")
    with pytest.raises(Undecided, match="KeyError"):
        lab.ask("plan", stream="unknown")


@pytest.mark.parametrize("wrong", [{"protocol": "1"}, {"decider": "another"}])
def test_question_with_another_protocol_or_decider_gets_no_decision(lab, wrong):
    about = {"protocol": PROTOCOL, "decider": lab.controller.bridge.decider}
    facts = {**about, "number": "1", "stream": "a stream", "start": "{}", **wrong}
    answer = lab.controller.bridge.apply("plan", urlencode(facts))
    assert "verdict=none" in answer


def test_unknown_question_from_the_shim_gets_no_decision():
    with pytest.raises(Undecided, match="no question 'apply'"):
        DeciderLab().ask("apply")


def test_stream_opened_twice_is_kept_as_one_stream(lab):
    """The shim asks again if the answer came too late."""
    lab.ask("open", options="")
    assert lab.opened == ["1"]


def test_handle_explains_and_lists_holds_like_a_consumer(lab):
    with lab.controller.held("re:ord.*", reason="by hand"):
        (line,) = lab.controller.explain("orders:0")
        assert "re:ord.* held by held-" in line
        assert [str(hold.scope) for hold in lab.controller.holds()] == ["re:ord.*"]
    assert lab.controller.explain("orders") == ()


def test_block_without_targets_is_refused(lab):
    """A block without targets would run without a hold."""
    topics = []
    with (
        pytest.raises(HoldSettingError, match=r"held\(safeconsumer.ALL\)"),
        lab.controller.held(*topics, reason="migration"),
    ):
        pytest.fail("the block ran")


def test_lag_of_a_stopped_stream_no_longer_counts(lab):
    lab.controller.pause("@all")
    lab.batch(START, LATEST)
    assert lab.controller.lag() == {("orders", 0): 4, ("returns", 0): 3}
    lab.ask("close")
    assert lab.controller.lag() == {}


def test_options_arrive_as_they_were_given():
    seen = []

    def opened(name, made, _folder):
        seen.append(made)
        return Stream(name, made, ledgers=(ledger(()),))

    options = "kafka.a=%26+%3D%2B%25%C3%A9&kafka.b=&holds=orders%3A3&holds.decider=x"
    bridge = Controller(
        opened, ledger(()), Spark(), skip_requests=SkipRequests()
    ).bridge
    asked(bridge, "open", stream="a stream", options=options)
    assert seen[0].data_client == {"a": "& =+%é", "b": ""}
    assert list(map(str, seen[0].scopes)) == ["orders:3"]


def test_query_is_not_quiet_from_its_start_to_its_first_plan(lab):
    lab.ask("close")
    spark = lab.spark
    assert lab.not_quiet() == ""
    spark.running = [Query(id="nightly's", name="nightly", is_starting=True)]
    assert "nightly: it is starting" in lab.not_quiet()
    spark.running = [Query(id="nightly's", name="nightly")]
    assert lab.not_quiet() == ""  # the query does not read that topic
    about = {"query": "nightly's", "batch": "nightly\nid = 1"}
    assert lab.ask("made", **about)["ends"] == "yes"
    assert "nightly: it is starting" in lab.not_quiet()
    lab.ask("open", options="")
    assert "it has not planned a batch yet" in lab.not_quiet()
    lab.controller.pause("@all")
    lab.batch({("orders", 0): 0}, {("orders", 0): 5})
    assert lab.not_quiet() == ""


def test_stream_that_ended_before_it_was_opened_is_not_awaited(lab):
    """The query is over, although Spark does not always notify its sources."""
    lab.ask("close")
    spark = lab.spark
    assert lab.ask("made", query="one", batch="")["ends"] == "no"
    assert lab.not_quiet() == ""
    spark.running = None
    assert "one: it is starting" in lab.not_quiet()
    assert "Spark does not tell" in lab.not_quiet()
    lab.ask("close")
    assert "one: " not in lab.not_quiet()


@pytest.mark.parametrize("timeout", ["5s", None, math.nan, -1, True], ids=short)
def test_wait_requires_a_finite_number_of_seconds(timeout):
    """A wait of NaN seconds would never end."""
    with pytest.raises(HoldSettingError, match="timeout must be seconds, 0 or more"):
        DeciderLab().controller.wait_quiet("orders", timeout=timeout)


@pytest.mark.parametrize("hooks", [print, 3], ids=short)
def test_hooks_must_be_a_list(hooks):
    with pytest.raises(HookTypeError, match=r"hooks takes a list of functions"):
        ledger(hooks)


def test_handle_is_closed_once_and_only_if_no_streams_are_running():
    lab, freed = DeciderLab(), []
    lab.controller.on_close = lambda: freed.append(1)
    with pytest.raises(SparkSetupError, match="streams first: stream 1"):
        lab.controller.close()
    lab.ask("close")
    lab.controller.close()
    lab.controller.close()
    assert freed == [1]
    with pytest.raises(SparkSetupError, match="or the handle closed"):
        lab.controller.pause("orders")


def test_ranges_are_valid_targets_as_on_the_command_line(lab):
    lab.controller.pause("orders:0-2,5")
    held = [str(hold.scope) for hold in lab.controller.holds()]
    assert held == ["orders:0", "orders:1", "orders:2", "orders:5"]
    assert lab.controller.resume("orders:0-2,5") == ()
    assert lab.controller.holds() == ()


@pytest.mark.parametrize("question", ["plan", "freeze"])
def test_run_that_ends_on_its_own_fails_if_the_holds_cannot_be_read(lab, question):
    """Otherwise such a run would end successfully without having read any record."""
    if question == "freeze":
        lab.plan("other", ends="yes")
    lab.elsewhere.trouble = "no broker"
    with pytest.raises(
        Refused, match="would end as if there were no records: no broker"
    ):
        lab.plan("none", question, ends="yes")


class SharedObject:
    """A shared object that records whether it has been closed."""

    is_closed = False

    def close(self):
        self.is_closed = True


def test_object_with_an_equal_key_is_shared_until_its_last_user_returns_it():
    shared = Shared()
    users = [ExitStack() for _ in range(4)]
    first, second = (shared.lease("a", SharedObject, one) for one in users[:2])
    other = shared.lease("b", SharedObject, users[2])
    assert second is first
    assert other is not first
    users[0].close()
    users[0].close()
    assert not first.is_closed
    users[1].close()
    assert (first.is_closed, other.is_closed) == (True, False)
    assert shared.lease("a", SharedObject, users[3]) is not first


def test_next_user_creates_a_new_object_after_a_failure():
    shared = Shared()

    def refuse():
        raise ClientPropertyError

    with pytest.raises(ClientPropertyError):
        shared.lease("a", refuse, ExitStack())
    with ExitStack() as user:
        made = shared.lease("a", SharedObject, user)
    assert made.is_closed
