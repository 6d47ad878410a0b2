"""
One member of one framework, in an environment of its own: ``python -m … JSON``.

Prints a line of JSON once it has handled its first record, and what it took at the end.
"""

import json
import os
import sys
import threading
import time
from typing import Any

from tests.bench.against.handling import Handling
from tests.bench.against.loops import LOOPS


def main() -> None:
    """Run until enough is handled, the time is over, or a signal comes."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    handling = Handling(told)
    threading.Thread(target=_end, args=(told, handling), daemon=True).start()
    LOOPS[told["framework"]](told, handling)
    _say(handling.measured())


def _end(told: dict[str, Any], handling: Handling) -> None:
    while handling.began is None:
        time.sleep(0.01)
    _say({"began": True})
    if "seconds" in told:
        handling.is_enough.wait(told["seconds"])
        _say(handling.measured())
        os._exit(0)  # how it would end is another question


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
