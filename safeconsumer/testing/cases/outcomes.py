"""Defines the errors that a case raises, for example if a client breaks the rule."""


class DiffersError(AssertionError):
    """The client breaks the rule of a case; the text describes the client's behaviour."""


class LeakedError(DiffersError):
    """A paused partition delivered records."""


class StarvedError(DiffersError):
    """A resumed partition delivered no more records, or not all of them."""


ONLY_PARTITIONS = "only partitions can be paused"
ONE_CONSUMER = "a pause belongs to one consumer"


class AbsentError(Exception):
    """The client lacks a call, so the case does not judge the client."""


class NotOnThisBrokerError(Exception):
    """The broker does not support the case, so the case does not judge the client."""


class NotReachedError(Exception):
    """
    The situation of a case was not reached, so the case does not judge the client.

    The error is not an ``AssertionError``, because the client did nothing wrong.
    """


def expect(
    holds: object, otherwise: str, error: type[DiffersError] = DiffersError
) -> None:
    """
    Raise an error unless a rule holds.

    Args:
        holds: whether the rule holds.
        otherwise: the text of the error, which describes the broken rule.
        error: the class of the error.
    """
    __tracebackhide__ = True
    if not holds:
        raise error(otherwise)
