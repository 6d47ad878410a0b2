"""Goes through a list of cases in one test, and reports all that is wrong at once."""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from traceback import format_exception_only
from typing import Any

import pytest

Test = Callable[..., None]


def each(
    names: str | tuple[str, ...], cases: Collection[Any]
) -> Callable[[Test], Test]:
    """Call a test for every case, as ``parametrize`` does; fixtures are made once."""
    given = (names,) if isinstance(names, str) else names
    assert cases, "a list without a case proves nothing"

    def over(test: Test) -> Test:
        @wraps(test)
        def all_of_them(**fixtures: Any) -> None:  # noqa: ANN401 - of any kind
            found = []
            for case in cases:
                values = (case,) if isinstance(names, str) else case
                try:
                    test(**fixtures, **dict(zip(given, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told
                    found += [
                        ", ".join(map(_name, values)),
                        *format_exception_only(error),
                    ]
            assert not found, "\n".join(["wrong for these:", *found])

        whole = inspect.signature(test)
        kept = [one for one in whole.parameters.values() if one.name not in given]
        all_of_them.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]  # pytest reads it
        return all_of_them

    return over


def _name(value: object) -> str:
    return getattr(value, "__name__", None) or f"{value!r:.99}"
