"""What is recorded of a client and a case."""

from enum import StrEnum
from typing import Any

from attrs import frozen


class Verdict(StrEnum):
    """One word per cell of the table."""

    PASSES = "passes"
    DIFFERS = "differs"
    CHOSEN = "chosen"
    ABSENT = "absent"
    UNCLEAR = "unclear"


@frozen(kw_only=True)
class Outcome:
    """
    The verdict on one client in one case of one run, and what was seen.

    ``CHOSEN`` differs as its documentation says that it does; ``ABSENT`` has no such
    call; ``UNCLEAR`` could not be brought into the situation. ``starved`` tells that
    it differs by giving no records after a resume.
    """

    case: str
    client: str
    verdict: Verdict
    seen: str = ""
    starved: bool = False
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "client": self.client,
            "verdict": str(self.verdict),
            "seen": self.seen,
            "seconds": round(self.seconds, 2),
        }
