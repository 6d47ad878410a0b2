"""What a random run finds is kept, tried first by the next one, and can be played again."""

import pytest

from tests.harness.chance import Played


@pytest.mark.parametrize("blob", ["no blob", "AQ==", ""])
def test_what_is_no_blob_is_refused(blob: str) -> None:
    """With what is expected instead."""
    with pytest.raises(pytest.UsageError, match="what a failed random run has printed"):
        Played(blob)
