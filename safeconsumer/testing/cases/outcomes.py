"""Defines the errors that a case raises, for example for a broken rule."""


class DiffersError(AssertionError):
    """The client breaks a case's rule; the text describes what the client did."""


class LeakedError(DiffersError):
    """A paused partition delivered records."""


class StarvedError(DiffersError):
    """A resumed partition did not deliver all of its records."""


ONLY_PARTITIONS = "only partitions can be paused"
ONE_CONSUMER = "a pause belongs to one consumer"


class AbsentError(Exception):
    """The client does not have a call, so the case does not judge the client."""


class NotOnThisBrokerError(Exception):
    """The broker does not support the case, so the case does not judge the client."""


class NotReachedError(Exception):
    """
    The situation that a case needs did not arise, so there is no verdict.

    The error is not an ``AssertionError``, because the client did nothing wrong.
    """


def expect(
    holds: object, otherwise: str, error: type[DiffersError] = DiffersError
) -> None:
    """
    Raise an error if a rule does not hold.

    Args:
        holds: whether the rule holds.
        otherwise: the text of the error, which describes the broken rule.
        error: the class of the error.
    """
    __tracebackhide__ = True
    if not holds:
        raise error(otherwise)
