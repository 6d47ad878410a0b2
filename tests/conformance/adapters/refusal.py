"""
How an adapter says that its client cannot do something at all.
"""


class AbsentError(Exception):
    """
    The client has no such call; no statement about what it does.
    """
