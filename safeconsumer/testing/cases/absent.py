"""The error by which an adapter reports that its client cannot do something at all."""

ONLY_PARTITIONS = "only partitions can be paused"
ONE_CONSUMER = "a pause belongs to one consumer"


class AbsentError(Exception):
    """The client has no such call; no statement about what it does."""
