"""
One client in a process of its own: takes calls on stdin, answers on stdout, as JSON.

``python -m tests.conformance.adapters NAME``. It runs in an environment that has the
client and nothing else, so the adapters use the standard library only.
"""

import importlib
import json
import os
import sys
import time
from typing import Any

from tests.conformance.adapters.refusal import AbsentError


def _private_stdout() -> Any:  # noqa: ANN401 - a text file
    # What a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def answer(adapter: Any, request: dict[str, Any]) -> dict[str, object]:  # noqa: ANN401 - one of three
    """
    Do one call; return its result, or what was raised and whose error class it is.
    """
    if request["call"] == "cpu":
        return {"result": time.process_time()}
    try:
        return {"result": getattr(adapter, request["call"])(**request["with"])}
    except AbsentError as error:
        return {"absent": str(error)}
    except Exception as error:  # noqa: BLE001 - told to the case, which may expect it
        kind = type(error)
        return {"error": f"{kind.__module__}.{kind.__qualname__}", "text": str(error)}


def main() -> None:
    """
    Serve until stdin ends.
    """
    answers = _private_stdout()
    module = importlib.import_module(f"tests.conformance.adapters.{sys.argv[1]}")
    adapter = module.Adapter()
    for line in sys.stdin:
        answers.write(json.dumps(answer(adapter, json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
