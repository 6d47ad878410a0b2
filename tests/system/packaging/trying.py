"""
Tries out a wheel that is installed without extras; the arguments are WHEEL and PYTHON.

PYTHON is the interpreter of an environment with only the wheel and its dependencies.
The wheel includes the embedded broker that the README's example starts.
"""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

README = Path(__file__).parents[3] / "README.md"
JAR = "safeconsumer/spark/jvm/safekafka.jar"
DECODER = "safeconsumer/_kafka/decoding/_batches.abi3.so"
LIMIT = 60.0


def example():
    """Return the README's first example."""
    found = re.search(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def main(wheel, python):
    for name in (JAR, DECODER):
        if name not in zipfile.ZipFile(wheel).namelist():
            sys.exit(f"{wheel} is without {name}: see the output of the build")
    python = os.path.abspath(python)  # noqa: PTH100 - the environment's link must stay
    where = "import safeconsumer as s; print(s.__file__)"
    with tempfile.TemporaryDirectory() as elsewhere:
        for code in (where, example()):
            subprocess.run(  # noqa: S603 - our own command line
                [python, "-I", "-c", code], check=True, timeout=LIMIT, cwd=elsewhere
            )
    sys.stdout.write("the README's example runs from the wheel\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
