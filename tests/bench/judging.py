"""Judges figures of two states that were measured side by side, by what is chance."""

import statistics

from tests.bench.figures import ratio

_ALLOWED = 0.02


def judged(row, name, values, rounds):
    """
    Compare what ``now`` took with what ``before`` took, of which less is better.

    It may take 2 % more; or twice as much more as the same state took more, or less, in
    any of the rounds: the others of a round share its processes, and their luck.
    """
    again, now = values["now again"], values["now"]
    pairs = [one / other for one, other in zip(again, now, strict=True)]
    length = len(pairs) // rounds
    chance = max(
        abs(statistics.median(pairs[at : at + length]) - 1)
        for at in range(0, rounds * length, length)
    )
    at_most = round(1 + max(_ALLOWED, 2 * chance), 4)
    note = f"the same state twice: up to {chance:.1%} in a round"
    return ratio(row, name, values, "now", "before", at_most=at_most, note=note)


def sentences(figures):
    """Yield what each figure of a report says, as a sentence."""
    for one in figures:
        more, allowed = one["measured"] - 1, one["at_most"] - 1
        change = f"{abs(more):.1%} {'more' if more > 0 else 'less'} than before"
        text = f"{one['row']}: {one['name']} is {change}"
        if not one["passed"]:
            yield f"{text}, a regression: {allowed:.1%} could be chance."
        elif abs(more) > allowed:
            yield f"{text}."
        else:
            yield f"{text}, which could be chance."
