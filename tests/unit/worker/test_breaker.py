"""What a breaker refuses to be made with."""

from typing import Any

import pytest

from safeconsumer import Breaker, WorkerSettingError


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"on": ()}, "tuple of at least one exception class"),
        ({"on": ConnectionError}, "tuple of exception classes"),
        ({"on": (BaseException,)}, "tuple of exception classes"),
        ({"on": (3,)}, "tuple of exception classes"),
        ({"failures": 0}, "1 or more"),
        ({"first": 0}, "above 0"),
        ({"factor": 0.5}, "must not get shorter"),
        ({"first": 10.0, "most": 9.0}, "must not get shorter"),
        ({"most": float("inf")}, "finite"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    """By name, and before anything is started."""
    with pytest.raises(WorkerSettingError, match=said):
        Breaker(**{"on": (OSError,), **settings})
