"""What streams of one session share."""

import pytest

from safeconsumer.errors import ClientPropertyError
from safeconsumer.spark.opening import Shared


class Lent:
    """What is lent: it only tells whether it is closed."""

    is_closed = False

    def close(self):
        self.is_closed = True


def test_equal_ones_are_shared_until_the_last_user_gives_them_back():
    shared = Shared()
    first, give_first = shared.lease("a", Lent)
    second, give_second = shared.lease("a", Lent)
    other, _ = shared.lease("b", Lent)
    assert second is first
    assert other is not first
    give_first()
    give_first()
    assert not first.is_closed
    give_second()
    assert (first.is_closed, other.is_closed) == (True, False)
    assert shared.lease("a", Lent)[0] is not first


def test_after_a_failure_the_next_user_makes_its_own():
    shared = Shared()

    def refuse():
        raise ClientPropertyError

    with pytest.raises(ClientPropertyError):
        shared.lease("a", refuse)
    made, give_back = shared.lease("a", Lent)
    give_back()
    assert made.is_closed
