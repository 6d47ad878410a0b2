"""Results as a play could have ended."""

from safeconsumer.demo import SCENARIOS, Counts, Failure, Result, Scenario


def scenario(name: str) -> Scenario:
    return next(one for one in SCENARIOS if one.name == name)


def result(
    name: str,
    client: str,
    failure: Failure | None = None,
    *,
    error: str | None = None,
) -> Result:
    """Return a play of 500 records, 7 of which went wrong if there was a failure."""
    wrong = {failure: 7}
    return Result(
        scenario=name,
        client=client,
        counts=Counts(
            produced=500,
            while_paused=wrong.get(Failure.LEAKED, 0),
            after_resume=440,
            missing=wrong.get(Failure.LOST, 0),
            duplicated=wrong.get(Failure.DUPLICATED, 0),
        ),
        seconds=4.25,
        error=error,
    )


def as_known(name: str) -> list[Result]:
    """Both clients, each as is known or promised of it."""
    return [result(name, "stock", scenario(name).stock_failure), result(name, "safe")]
