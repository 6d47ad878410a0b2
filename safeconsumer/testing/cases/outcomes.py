"""Errors that a case raises if a client does something else than its rule says."""


class DiffersError(AssertionError):
    """The client does something else than the case's rule says; the text says what."""


class LeakedError(DiffersError):
    """Records came of what is paused."""


class StarvedError(DiffersError):
    """What was resumed gave no more, or not all."""


ONLY_PARTITIONS = "only partitions can be paused"
ONE_CONSUMER = "a pause belongs to one consumer"


class AbsentError(Exception):
    """The client has no such call; no statement about what it does."""


class NotOnThisBrokerError(Exception):
    """The broker cannot do what a case needs of it; no statement about the client."""


class NotReachedError(Exception):
    """
    The situation of a case did not come about; no statement about the client.

    Not an ``AssertionError``, so that nobody takes it for one.
    """


def expect(
    holds: object, otherwise: str, error: type[DiffersError] = DiffersError
) -> None:
    """
    Go on if the rule holds.

    Args:
        holds: whether it does.
        otherwise: what was seen if it does not.
        error: what to raise then.
    """
    __tracebackhide__ = True
    if not holds:
        raise error(otherwise)
