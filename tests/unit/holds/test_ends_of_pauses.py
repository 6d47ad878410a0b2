"""When pauses end that were made by several calls, for a time, or beside another one."""

from safeconsumer.holds.hold import APP, WHOLE, Lifetime
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.plain import Edition
from safeconsumer.holds.scope import Partition, Topic
from tests.harness.holds.lab import A, B, LedgerLab

C = ("orders", 2)


def plain(
    lab: LedgerLab,
    *names: tuple[str, int],
    of: Edition | None = None,
    for_: float | None = None,
) -> None:
    """Pause partitions; ``of``: named as ``assignment()`` returned them then."""
    lab.pause(*(Partition(*name) for name in names), edition=of, for_=for_)


def owned() -> LedgerLab:
    """Make a ledger that owns two partitions."""
    return LedgerLab(owns=[A, B])


def test_a_shorter_pause_by_name_leaves_the_whole_pause_as_it_is() -> None:
    """It ends by itself; what is gained later is held all the same."""
    lab = owned()
    plain(lab, A, B, of=lab.assignment())
    plain(lab, A, of=lab.assignment(), for_=5)
    lab.clock.now += 6
    lab.assign(A, B, C)
    assert lab.quiet() == {A, B, C}


def test_a_longer_pause_by_name_does_not_make_the_whole_pause_longer() -> None:
    """Each partition is quiet for as long as it was asked for."""
    lab = owned()
    plain(lab, A, B, of=lab.assignment(), for_=5)
    plain(lab, A, of=lab.assignment())
    lab.clock.now += 6
    assert lab.quiet() == {A}


def test_a_whole_pause_of_several_calls_ends_with_the_first_of_them() -> None:
    """A backoff each: of 1 s and of 600 s."""
    lab = owned()
    plain(lab, A, of=lab.assignment(), for_=1)
    plain(lab, B, of=lab.assignment(), for_=600)
    assert lab.ledger.view().holds.get((Topic("orders"), WHOLE)) is not None
    lab.clock.now += 2
    assert lab.quiet() == {B}


def test_a_name_that_is_over_makes_no_whole_pause() -> None:
    """Nor one that was taken back."""
    lab = owned()
    plain(lab, A, of=lab.assignment(), for_=1)
    lab.clock.now += 2
    plain(lab, B, of=lab.assignment())
    assert lab.quiet() == {B}
    lab.ledger.remove([], by_application=True)
    plain(lab, A, of=lab.assignment())
    assert lab.ledger.view().holds.get((Topic("orders"), WHOLE)) is None


def test_nothing_assigned_a_resume_opens_what_the_next_gain_would_be_gated_for() -> (
    None
):
    """P10: it can name nothing of what was paused, and it is over."""
    lab = LedgerLab(owns=[A])
    plain(lab, A)
    lab.ledger.begin_call()
    lab.ledger.end_call()
    lab.assign()
    lab.ledger.remove([], by_application=True)
    assert lab.poll([B]) == [set()]


def test_a_plain_pause_over_one_that_lasts_while_assigned_outlives_a_loss() -> None:
    """P3: the membership is lost, and the next join gives it back."""
    lab = owned()
    scope = Partition(*A)
    lab.ledger.place([scope], owner=APP, lifetime=Lifetime.WHILE_ASSIGNED)
    plain(lab, A)
    lab.ledger.assign((), Cause.PASSING)
    lab.assign(A, B)
    assert lab.quiet() == {A}


def test_an_expired_whole_pause_ends_nothing_that_may_be_given_back() -> None:
    """P3: while the membership is lost nothing is away for good."""
    lab = owned()
    plain(lab, A, B, of=lab.assignment(), for_=5)
    lab.ledger.begin_call()
    lab.ledger.end_call()
    plain(lab, A)
    lab.ledger.assign((), Cause.PASSING)
    lab.clock.now += 6
    assert lab.quiet() == set()
    lab.assign(A, B)
    assert lab.quiet() == {A}


def test_a_whole_pause_that_is_lifted_by_its_listed_owner_ends_what_is_away() -> None:
    """P7: as any resume of the application does."""
    lab = owned()
    plain(lab, A, B, of=lab.assignment())
    lab.assign(B)
    lab.ledger.remove([(Topic("orders"), WHOLE)])
    lab.assign(A, B)
    assert lab.quiet() == {B}
