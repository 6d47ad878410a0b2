"""What ``safeconsumer run`` says where it starts, and at its end."""

import pytest

from safeconsumer.cli import run as command
from safeconsumer.events import PartitionStarted
from safeconsumer.worker import Report

OUT = "orders:0 starts at 60: the committed offset is out of range, auto_offset_reset="


@pytest.mark.parametrize(
    ("reset", "said"),
    [
        ("earliest", f"{OUT}earliest"),
        ("latest", f"{OUT}latest, or records up to here were deleted"),
    ],
)
def test_it_says_what_may_have_been_deleted(
    reset: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under ``latest`` it goes on at what is left, which no policy has chosen."""
    command._start_lines(reset)(
        PartitionStarted(
            partition="orders:0", offset=60, is_committed=False, is_reset=True
        )
    )
    assert capsys.readouterr().err == f"safeconsumer: {said}\n"


@pytest.mark.parametrize(
    ("gone", "said"),
    [(0, "0 dropped; "), (1, "0 dropped, 1 offset deleted unread; ")],
)
def test_it_says_what_is_gone(gone: int, said: str) -> None:
    """Nothing, if nothing is."""
    counts = {"done": 1, "dropped": 0, "given_up": 0, "dead_letters": 0, "skipped": 0}
    report = Report(**counts, gone=gone, committed=True, seconds=0.0)
    assert said in command._sentence(report)
