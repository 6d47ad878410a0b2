"""Sends a handler's exception to another process, with its class and its traceback."""

import contextlib
import pickle
from collections.abc import Mapping
from typing import Any, TypeAlias

from attrs import define

from safeconsumer.worker.calls import Answer
from safeconsumer.worker.handlers import BatchFailure
from safeconsumer.worker.tracebacks import chain, shown

Pickled: TypeAlias = bytes | None


def sendable(answer: Answer) -> tuple[int, "Parcel | None"]:
    """
    Return an answer that can be sent, whatever its error is.

    The error arrives with its own class, or with the nearest parent that can be
    imported there, so that ``Retry.never`` and ``except`` mean the same. Which classes
    these are is known only there, so it is sent in parts.
    """
    count, error = answer
    if error is None:
        return count, None
    _note_chain(error)
    return count, Parcel(error)


@define
class Parcel:
    """An error on its way: unpickling it gives the error."""

    error: BaseException

    def __reduce__(self) -> Any:  # noqa: ANN401 - what pickle asks for
        error = self.error
        whole = [_dumped(error), _dumped(_each_apart(error))]
        kinds = [_dumped(kind) for kind in type(error).__mro__]
        return _arrived, (whole, kinds, *_inside(error), shown(error))


def _note_chain(error: BaseException) -> None:
    with contextlib.suppress(Exception):  # whatever its class does
        error.add_note(chain(error))  # a traceback does not travel by itself


def _each_apart(error: BaseException) -> object:
    if not isinstance(error, BatchFailure) or not isinstance(error.errors, dict):
        return None
    return BatchFailure({at: _inner(one) for at, one in error.errors.items()})


def _inner(one: Any) -> Any:  # noqa: ANN401 - it may be anything
    if not isinstance(one, BaseException):
        return one
    _note_chain(one)
    return Parcel(one)


def _inside(error: BaseException) -> tuple[list[Pickled], dict[str, Pickled]]:
    try:
        args = [_dumped(one) for one in error.args]
        state = {str(name): _dumped(one) for name, one in error.__dict__.items()}
    except Exception:  # noqa: BLE001 - whatever its class does
        return [None], {}
    return args, state


def _dumped(thing: object) -> Pickled:
    try:
        return pickle.dumps(thing)
    except BaseException:  # noqa: BLE001 - whatever its class does
        return None


# ------------------------------------------------------------ where it arrives

_MISSING = object()


def _arrived(
    whole: list[Pickled],
    kinds: list[Pickled],
    args: list[Pickled],
    state: dict[str, Pickled],
    text: str,
) -> BaseException:
    for error in map(_loaded, whole):
        if isinstance(error, BaseException):
            return error
    given = tuple(map(_loaded, args))
    had = {name: _loaded(one) for name, one in state.items()}
    had = {name: one for name, one in had.items() if one is not _MISSING}
    if not any(one is _MISSING for one in given):
        error = _remade(_loaded(kinds[0]), given, had)
        if error is not None:
            return error
    for kind in [*map(_loaded, kinds), RuntimeError]:
        error = _remade(kind, (text,), had)
        if error is not None:
            return error
    return RuntimeError(text)


def _loaded(one: Pickled) -> Any:  # noqa: ANN401 - anything
    try:
        return _MISSING if one is None else pickle.loads(one)  # noqa: S301 - ours
    except BaseException:  # noqa: BLE001 - whatever its class does
        return _MISSING


def _remade(
    kind: object, args: tuple[Any, ...], state: Mapping[str, Any]
) -> BaseException | None:
    # Its constructor may need any arguments, so it is not called.
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return None
    try:
        error = kind.__new__(kind, *args)
        error.args = args
        error.__dict__.update(state)
    except Exception:  # noqa: BLE001 - whatever its class does
        return None
    return error
