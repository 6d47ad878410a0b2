"""kafka-python: what was paused in the middle of a batch never comes after the resume."""

from tests.system.upstream.stage import played


def shown() -> str | None:
    counts = played("resume-starvation")
    said = f"{counts.missing} of {counts.produced} records never came"
    return said if counts.missing else None
