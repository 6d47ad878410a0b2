"""
One target, fed by a coverage-guided fuzzer: ``python -m tests.unit.fuzz.engine``.

A process of its own, because libFuzzer ends the process when it has done. Only our own
code is instrumented.
"""

import argparse
import sys
import warnings
from pathlib import Path

import atheris  # type: ignore[import-not-found, unused-ignore]  # the extra "fuzz"

# No input of these readers takes a second; libFuzzer ends one that takes so many.
_HANGS_AFTER = 30
_LONGEST = 4096


def main() -> None:
    """Feed the target so many inputs, or until one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--executions", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # what re says of odd patterns
    with atheris.instrument_imports(include=["safeconsumer"]):
        from tests.unit.fuzz.targets import BY_NAME  # noqa: PLC0415 - instrumented
    target = BY_NAME[given.target]
    corpus = given.folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(data)
    arguments = [
        sys.argv[0],
        f"-atheris_runs={given.executions}",
        f"-seed={given.seed}",
        f"-timeout={_HANGS_AFTER}",
        f"-max_len={_LONGEST}",
        f"-artifact_prefix={given.folder}/",
        "-print_final_stats=1",
        str(corpus),
    ]
    atheris.Setup(arguments, target.feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
