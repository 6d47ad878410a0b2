"""The limit of first letters: today's sentence is no sentence. It fails today."""

from safeconsumer.worker.retry import Failing


def test_the_limit_of_first_letters_fits_its_message() -> None:
    """
    "none of the first 6 records has succeeded, more than max_ratio of DeadLetter allows".

    ``results._too_many`` appends the same clause to both reasons of ``exceeds``.
    """
    failing = Failing()
    for _ in range(6):
        failing = failing.failed()
    why = failing.exceeds(0.9)
    assert why is not None
    assert not why.startswith("none"), f"{why}, more than max_ratio of DeadLetter allows"
