"""
Cleans up after a client whose constructor raises.

The constructor of a kafka-python 3.0.12 client starts a thread and waits for a broker.
If no broker responds, the constructor raises, and the thread runs until the process
exits. A program that retries until a broker is back would leak one thread with each
attempt.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

T = TypeVar("T")


def constructed(kind: Callable[..., T], *topics: str, **configs: Any) -> T:  # noqa: ANN401 - upstream's
    """Return a new client; if its constructor raises, its thread is stopped."""
    if not isinstance(kind, type):
        return kind(*topics, **configs)
    client: Any = kind.__new__(kind, *topics, **configs)
    with closed_if_constructor_fails(client):
        client.__init__(*topics, **configs)
    return cast("T", client)


@contextmanager
def closed_if_constructor_fails(client: Any) -> Iterator[None]:  # noqa: ANN401 - kafka-python is untyped
    """Close a client if the ``with`` block, which runs its constructor, raises."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the constructor's exception must be raised
            client._client.close()  # closing ends the thread, too
        raise
