"""Runs one variant of a benchmark: reads steps from stdin, writes results to stdout."""

import gc
import importlib
import json
import os
import sys
import traceback

# The program imports only the module that its variant needs, because every other module
# would add to the measured memory.
_VARIANTS = {
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
    module, kind = _VARIANTS[name]
    return getattr(importlib.import_module(f"tests.bench.variants.{module}"), kind)(
        **settings
    )


def main():
    """Create the variant that the first line names; perform the step in each later line."""
    answers = _private_stdout()
    variant = None
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if variant is None:
                    variant, result = _made(request["variant"], request["with"]), {}
                else:
                    gc.collect()
                    result = getattr(variant, request["step"])(**request["with"])
            except Exception:  # noqa: BLE001 - the answer reports it
                result = {"error": traceback.format_exc()}
            answers.write(json.dumps(result) + "\n")
    finally:
        if variant is not None:
            variant.close()


if __name__ == "__main__":
    main()
