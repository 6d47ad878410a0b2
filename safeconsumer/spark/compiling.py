"""
Compiles the shim against the jars of the Spark that is here, and packs it into a jar.

The classes are the same for each Spark from 3.5 to 4.2, byte for byte. The build of a
wheel runs this file as well, without this package's dependencies, so it imports only
the standard library.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

JVM = Path(__file__).with_name("jvm")
SOURCES = JVM / "src" / "main"
RELEASE = "17"  # the oldest Java that a supported Spark runs on

_TIMEOUT = 120.0
_SAME_DATE = (1980, 1, 1, 0, 0, 0)  # the same classes make the same jar


class CompileError(Exception):
    """There is no Spark or no ``javac``, or it failed; the message has its output."""


def java_files() -> list[Path]:
    """Return the sources of the shim."""
    return sorted((SOURCES / "java").rglob("*.java"))


def spark_homes() -> list[Path]:
    """Return where Spark may be, as pyspark looks for it: ``SPARK_HOME``, or itself."""
    if home := os.environ.get("SPARK_HOME"):
        return [Path(home)]
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return []
    package = Path(found.origin).parent
    return [package, package.parents[1]]  # the second: it is SPARK_HOME/python/pyspark


def make_jar(target: Path) -> None:
    """
    Compile the shim and put its jar at ``target``, completely or not at all.

    Raises:
        CompileError: there is no ``javac`` in PATH, or no Spark, or it failed.
        OSError: ``target`` cannot be written.
    """
    javac = shutil.which("javac")
    if javac is None:
        message = f"there is no javac (of a JDK {RELEASE} or newer) in PATH"
        raise CompileError(message)
    jars = [one / "jars" for one in spark_homes() if (one / "jars").is_dir()]
    if not jars:
        message = "there are no jars of Spark, neither in SPARK_HOME nor in pyspark"
        raise CompileError(message)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        classes = Path(scratch, "classes")
        _compile(javac, jars[0], classes)
        shutil.copytree(SOURCES / "resources", classes, dirs_exist_ok=True)
        _pack(classes, Path(scratch, "shim.jar"))
        Path(scratch, "shim.jar").replace(target)


def _compile(javac: str, jars: Path, folder: Path) -> None:
    command = [javac, "--release", RELEASE, "-proc:none", "-nowarn", "-encoding"]
    command += ["UTF-8", "-cp", f"{jars}/*", "-d", str(folder)]
    done = subprocess.run(  # noqa: S603 - our own command line
        [*command, *map(str, java_files())],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode:
        message = f"{javac} failed: {done.stderr.strip()[-2000:]}"
        raise CompileError(message)


def _pack(folder: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as made:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = file.relative_to(folder).as_posix()
            made.writestr(zipfile.ZipInfo(name, _SAME_DATE), file.read_bytes())
