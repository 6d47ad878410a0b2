"""The place at which a thread waits for the broker: another may come here, too."""


def others_may_come() -> None:
    """Be a place; the explorer counts the lines of this file as it counts ours."""
    return None  # noqa: RET501 - the line that is counted
