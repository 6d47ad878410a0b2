"""Defines the errors that a case raises if a client breaks its rule."""


class DiffersError(AssertionError):
    """The client breaks the case's rule; the text describes its behaviour."""


class LeakedError(DiffersError):
    """A paused partition gave records."""


class StarvedError(DiffersError):
    """A resumed partition gave no more records, or not all."""


ONLY_PARTITIONS = "only partitions can be paused"
ONE_CONSUMER = "a pause belongs to one consumer"


class AbsentError(Exception):
    """The client has no such call, so that the case does not judge it."""


class NotOnThisBrokerError(Exception):
    """The broker cannot play the case, so that it does not judge the client."""


class NotReachedError(Exception):
    """
    The situation of a case did not come about, so that it does not judge the client.

    Not an ``AssertionError``: the client did nothing wrong.
    """


def expect(
    holds: object, otherwise: str, error: type[DiffersError] = DiffersError
) -> None:
    """
    Raise an error unless the rule holds.

    Args:
        holds: whether it holds.
        otherwise: the error's text: the observation that breaks the rule.
        error: the class of the error.
    """
    __tracebackhide__ = True
    if not holds:
        raise error(otherwise)
