"""
Runs a consumer in its own process, with JSON calls on stdin and answers on stdout.

Usage: ``python -m safeconsumer.testing.cases.member MODULE:ADAPTER [ARGUMENT ...]``.
"""

import importlib
import json
import os
import queue
import sys
import threading
import time
import traceback
from typing import Any, TextIO

from safeconsumer.testing.cases.outcomes import AbsentError


def _private_stdout() -> TextIO:
    # The output of libraries must not be mixed with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def answer(adapter: Any, request: dict[str, Any]) -> dict[str, object]:  # noqa: ANN401  any adapter
    """Run a call; return its result, or the class and text of its exception."""
    if request["call"] == "cpu":
        return {"result": time.process_time()}
    try:
        return {"result": getattr(adapter, request["call"])(*request["with"])}
    except AbsentError as error:
        return {"absent": str(error)}
    except Exception as error:  # noqa: BLE001  the case may expect the error
        kind = type(error)
        return {
            "error": f"{kind.__module__}.{kind.__qualname__}",
            "text": str(error),
            "trace": traceback.format_exc(),
        }


def found(spec: str) -> Any:  # noqa: ANN401  any object
    """
    Return the object named ``module:name``; the name may contain dots.

    Raises:
        ImportError: the module does not exist, or its import failed.
        AttributeError: the module does not have that name.
    """
    module, _, name = spec.partition(":")
    where: Any = importlib.import_module(module)
    for part in name.split("."):
        where = getattr(where, part)
    return where


def main() -> None:
    """Answer calls until stdin is closed."""
    answers = _private_stdout()
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    spec, *arguments = sys.argv[1:]
    adapter = found(spec)(*arguments)
    while True:
        request = json.loads(requests.get())
        answers.write(json.dumps(answer(adapter, request)) + "\n")


def _listen(requests: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)  # the parent has exited, and the client may hang


if __name__ == "__main__":
    main()
