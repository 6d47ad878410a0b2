"""kafka-python: a join that outlasts its poll is forgotten; two members work on the same."""

from tests.system.upstream.stage import played


def shown() -> str | None:
    counts = played("forgotten-join")
    said = f"{counts.duplicated} of {counts.produced} records delivered by two members"
    return said if counts.duplicated else None
