"""Parses the scopes of holds independently of the package's code, which the judge tests."""

import re


def covers(scope, tp):
    """Return whether a scope, in the notation of the contract, includes a partition."""
    if scope.startswith("re:"):
        return re.fullmatch(scope.removeprefix("re:"), tp.topic) is not None
    return scope in {"@all", tp.topic, short(tp)}


def short(*partitions):
    """Return the partitions in the notation of the contract, separated by spaces."""
    return " ".join(f"{tp.topic}:{tp.partition}" for tp in sorted(partitions))
