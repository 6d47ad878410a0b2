"""Runs one arm of a measurement; reads steps from stdin and writes results to stdout."""

import gc
import importlib
import json
import os
import sys
import traceback

# The program imports only the module that its arm needs, because every other module
# would add to the measured memory.
_ARMS = {
    "reader": ("clients", "Reader"),
    "working": ("working", "Working"),
}


def _private_stdout():
    # Output from libraries must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return answers


def _made(name, settings):
    module, kind = _ARMS[name]
    return getattr(importlib.import_module(f"tests.bench.arms.{module}"), kind)(
        **settings
    )


def main():
    """Make the arm that the first line names; perform the step that each later line names."""
    answers = _private_stdout()
    arm = None
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if arm is None:
                    arm, result = _made(request["arm"], request["with"]), {}
                else:
                    gc.collect()
                    result = getattr(arm, request["step"])(**request["with"])
            except Exception:  # noqa: BLE001 - the answer reports it
                result = {"error": traceback.format_exc()}
            answers.write(json.dumps(result) + "\n")
    finally:
        if arm is not None:
            arm.close()


if __name__ == "__main__":
    main()
