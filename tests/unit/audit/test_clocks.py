"""Members' clocks are compared with the broker's: no wrong clock convicts, none acquits."""

from safeconsumer.audit.checker import check
from safeconsumer.audit.results import Settings
from tests.harness.audit.bad import TP
from tests.harness.audit.control import Operator, control_in
from tests.harness.audit.telling import Telling
from tests.harness.listing import each

HELD = (2000.0, 2900.0)  # when the group is held, in these tests


def judged(*fleet: Telling, operator: Operator | None = None) -> tuple[set[str], str]:
    """Return the checks that were broken, and why G2 is not judged."""
    operator = operator or Operator().held(*HELD)
    settings = Settings(clock_skew=1.0, control=control_in([operator]))
    (result,) = check([one.journal() for one in fleet], settings).values()
    return {one.check for one in result.findings}, result.unjudged.get("G2", "")


def reads(at: float = 1000.0, member: str = "a") -> Telling:
    """Tell of a member that reads a record as soon as it is appended."""
    return Telling(member, at=at).assigned(TP).poll(TP, 0, 1)


def test_an_innocent_member_that_was_suspended_is_not_guilty() -> None:
    """Suspended from 1,500 to 3,000, it reads on at 3,600, long after the lift."""
    told = reads().until(1500).poll(TP, 1, 2, written=3000.1)
    told.until(2100).poll(TP, 2, 3, written=3600.0)
    broken, why = judged(told)
    assert broken == set()
    assert why.startswith("the clock of a is 1499.900 s or more behind the broker's")
    assert "as entry 3 shows, and 1 s are allowed" in why


def test_what_it_reads_of_the_time_before_shows_nothing() -> None:
    """It has a backlog then: that its clock was wrong is shown by what comes later."""
    told = reads().until(1950).poll(TP, 1, 2, written=1400.0)
    told.until(2100).poll(TP, 2, 3, written=1500.0)
    told.until(2200).poll(TP, 3, 4, written=3700.0)
    broken, why = judged(told)
    assert (broken, "s or more behind" in why) == (set(), True)


def test_a_leak_of_a_member_that_was_suspended_is_not_clean() -> None:
    """At 2,050 of the broker's clock it is 1,050 of its own: before the hold."""
    told = reads(500).until(1050).poll(TP, 1, 2, written=2050.0)
    broken, why = judged(told)
    assert (broken, "the clock of a is 999.800 s or more" in why) == (set(), True)


def test_what_was_wrong_before_is_wrong() -> None:
    """Its clock was right when it leaked; afterwards it is suspended."""
    told = reads(1990).until(2050).poll(TP, 1, 2).until(2060).poll(TP, 2, 3)
    told.until(2070).poll(TP, 3, 4, written=5000.0)
    assert judged(told)[0] == {"G2"}


def test_a_clock_that_is_behind_matters_only_under_a_hold() -> None:
    """One that was over before can have been broken by nothing that came later."""
    told = reads(2950).until(3000).poll(TP, 1, 2, written=9000.0)
    assert judged(told) == (set(), "")


def test_another_members_wrong_clock_hides_nothing() -> None:
    wrong = reads(1000, member="b").revoked(TP)
    wrong.until(1500).assigned(TP, generation=5).poll(TP, 1, 2, written=3000.1)
    leaks = Telling("a", at=2100).assigned(TP, generation=3).poll(TP, 1, 2)
    assert judged(leaks.revoked(TP, generation=4), wrong)[0] == {"G2"}


@each(
    ("at", "written"),
    [
        (2400.0, 1400.0),  # it seems to be under the hold, and is before it
        (3100.0, 2100.0),  # it seems to be after the hold, and is under it
    ],
)
def test_a_clock_that_is_ahead_neither_convicts_nor_acquits(
    at: float, written: float
) -> None:
    """It is ahead by 1,000 s from its start: nothing came sooner after its append."""
    told = Telling(at=at).assigned(TP).poll(TP, 0, 1, written=written)
    broken, why = judged(told)
    assert broken == set()
    assert "the clock of a may be 1000.300 s ahead of the broker's" in why


def test_a_member_that_lags_is_judged_if_it_read_a_hold_in_time() -> None:
    """Its records are 100 s old, and come after the lift."""
    told = Telling(at=1900).assigned(TP)
    late = {"written": 2850.0}
    assert judged(told.until(2950).poll(TP, 0, 1, **late))[1].startswith("the clock")
    told = Telling(at=1900).assigned(TP).until(2000.5)
    told.then("hold", scope="orders", owner="operator:alice", written=2000.0)
    told.then("lift", scope="orders", owner="operator:alice", since=2900.0)
    assert judged(told.until(2950).poll(TP, 0, 1, **late)) == (set(), "")
    assert judged(told.until(3500).poll(TP, 1, 2, **late)) == (set(), "")


def test_of_producers_times_nothing_is_known() -> None:
    """
    Nobody is convicted; what seems right is right within the allowance.

    A hold that was read as soon as it was written shows that the clock is not ahead.
    """
    dated = {"written": None, "created": 1.0}
    told = Telling(at=2100).assigned(TP).poll(TP, 0, 1, **dated)
    broken, why = judged(told)
    assert (broken, "nothing shows that the clock of a is not" in why) == (set(), True)
    told = Telling(at=2950).assigned(TP).poll(TP, 0, 1, **dated)
    assert judged(told) == (set(), "")
    told = Telling(at=1900).assigned(TP).until(2000.5)
    told.then("hold", scope="orders", owner="operator:alice", written=2000.0)
    told.then("lift", scope="orders", owner="operator:alice", since=2001.0)
    assert judged(told.until(2100).poll(TP, 0, 1, **dated))[0] == {"G2"}


def test_handlers_of_a_member_whose_clock_is_wrong() -> None:
    """W10: as what it delivers."""
    told = Telling().then("working", order="key").assigned(TP)
    told.poll(TP, 0, 2).handle(TP, 0)
    told.until(2100).handle(TP, 1).poll(TP, 2, 3, written=3600.0)
    (result,) = check(
        [told.journal()], Settings(control=control_in([Operator().held(*HELD)]))
    ).values()
    assert result.findings == ()
    assert "s or more behind" in result.unjudged["W10"]
