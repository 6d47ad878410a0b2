"""
Sends what a handler raised to another process, with its class and its traceback.
"""

import contextlib
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from safeconsumer.worker.handlers import Answer, BatchFailure
from safeconsumer.worker.tracebacks import chain, shown


def sendable(answer: Answer) -> Answer:
    """
    Return an answer that arrives wherever it is sent.

    An error arrives as one of its own class, or of the nearest parent that can be
    imported there, so that ``Retry.never`` and ``except`` mean the same.
    """
    count, error = answer
    return count, None if error is None else _sendable(error)


def _sendable(error: BaseException) -> BaseException:
    with contextlib.suppress(Exception):  # whatever its class does
        error.add_note(chain(error))  # a traceback does not travel by itself
    if _travels(error):
        return error
    if isinstance(error, BatchFailure) and isinstance(error.errors, dict):
        each = BatchFailure({at: _inner(one) for at, one in error.errors.items()})
        if _travels(each):
            return each
    found: BaseException = next(one for one in _stand_ins(error) if _travels(one))
    return found


def _inner(one: Any) -> Any:  # noqa: ANN401 - it may be anything
    return _sendable(one) if isinstance(one, BaseException) else one


def _travels(error: object) -> bool:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, made just now
    except BaseException:  # noqa: BLE001 - whatever its class does
        return False
    return True


def _stand_ins(error: BaseException) -> Iterator[Any]:
    text = shown(error)
    notes = _notes(error)
    kinds = [one for one in type(error).__mro__ if issubclass(one, BaseException)]
    if all(map(_travels, error.args)):
        yield _Remade(kinds[0], error.args, _state(error))
    for kind in kinds:
        yield _Remade(kind, (text,), _state(error))
    yield _Remade(RuntimeError, (text,), notes)


class _Remade:
    """
    Arrives as an exception that nobody has constructed.
    """

    def __init__(
        self, kind: type[BaseException], args: tuple[Any, ...], state: Mapping[str, Any]
    ) -> None:
        self._parts = (kind, args, dict(state))

    def __reduce__(self) -> Any:  # noqa: ANN401 - what pickle asks for
        return _remake, self._parts


def _remake(
    kind: type[BaseException], args: tuple[Any, ...], state: Mapping[str, Any]
) -> BaseException:
    # Its constructor may want anything, so it is not asked.
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _state(error: BaseException) -> dict[str, Any]:
    state = getattr(error, "__dict__", None) or {}
    return {name: one for name, one in state.items() if _travels(one)}


def _notes(error: BaseException) -> dict[str, Any]:
    return {"__notes__": [chain(error)]}
