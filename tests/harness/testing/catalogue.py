"""Lists all public cases in the order of their modules."""

from attrs import frozen

from safeconsumer.testing.cases import (
    test_changed_logs,
    test_lost_membership,
    test_one_consumer,
    test_rebalances,
    test_subscriptions,
    test_wider_pauses,
)

_MODULES = (
    test_one_consumer,
    test_rebalances,
    test_lost_membership,
    test_subscriptions,
    test_changed_logs,
    test_wider_pauses,
)


@frozen(kw_only=True)
class Case:
    """
    One public case, which tests a behaviour that every client should have.

    Attributes:
        name: the test's name, with hyphens.
        part: the title of the case's module.
        run: the function that runs the case; it raises an error from
            :mod:`safeconsumer.testing.cases.outcomes` if a client does not have the
            behaviour.
    """

    name: str
    part: str
    run: object


def _cases(module):
    for name, run in vars(module).items():
        if name.startswith("test_"):
            yield Case(
                name=name.removeprefix("test_").replace("_", "-"),
                part=module.PART,
                run=run,
            )


CASES = {one.name: one for module in _MODULES for one in _cases(module)}
