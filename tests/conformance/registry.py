"""
All cases, in the order of the table.
"""

from collections.abc import Callable

from attrs import frozen

from tests.conformance.lab import Lab

Run = Callable[[Lab], str | None]


@frozen(kw_only=True)
class Case:
    """
    One behaviour: a rule in one line, and how it is tried.

    Attributes:
        name: its key.
        part: the heading under which it stands.
        rule: what must hold.
        run: tries it; returns a remark or None, raises if the rule does not hold.
    """

    name: str
    part: str
    rule: str
    run: Run


CASES: dict[str, Case] = {}


def case(part: str, rule: str) -> Callable[[Run], Run]:
    """
    Enter the function as a case, under its own name with hyphens.
    """

    def enter(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        CASES[name] = Case(name=name, part=part, rule=rule, run=run)
        return run

    return enter
