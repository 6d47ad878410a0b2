"""
Showing people what is somebody else's: an exception, what a handler returned.
"""

# What a log line, or a header of a dead letter, can take.
_MOST = 2000


def shown(thing: object) -> str:
    """
    Return its ``repr``, cut to what a log line takes; never raises.
    """
    try:
        text = repr(thing)
    except BaseException as error:  # noqa: BLE001 - it is anybody's code
        return f"<{_name(thing)} whose repr() raised {_name(error)}>"
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


def _name(thing: object) -> str:
    return type(thing).__qualname__
