"""
Compiles the shim and packs it into a jar, with nothing but ``javac``.

The build of a wheel runs this file as well, without this package's dependencies, so it
imports only the standard library.
"""

import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

JVM = Path(__file__).with_name("jvm")
SOURCES = JVM / "src" / "main"
API = JVM / "spark-api.java"
RELEASE = "17"  # the oldest Java that a supported Spark runs on

_TIMEOUT = 120.0
_SAME_DATE = (1980, 1, 1, 0, 0, 0)  # the same classes make the same jar


class CompileError(Exception):
    """There is no ``javac``, or it failed; the message has its output."""


def java_files() -> list[Path]:
    """Return the sources of the shim."""
    return sorted((SOURCES / "java").rglob("*.java"))


def make_jar(target: Path) -> None:
    """
    Compile the shim and put its jar at ``target``, completely or not at all.

    The jar contains the sources, so that a jar of other sources can be recognised.

    Raises:
        CompileError: there is no ``javac`` in PATH, or it failed.
        OSError: ``target`` cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch)
        declared = list(_declarations(folder / "api"))
        classes = compile_classes(folder / "classes", [*java_files(), *declared])
        ours = classes / "ours"
        shutil.copytree(SOURCES / "resources", ours)
        shutil.copytree(SOURCES / "java", ours, dirs_exist_ok=True)
        shutil.copytree(
            classes / "safeconsumer", ours / "safeconsumer", dirs_exist_ok=True
        )
        _pack(ours, folder / "shim.jar")
        (folder / "shim.jar").replace(target)


def compile_classes(folder: Path, files: list[Path], *options: str) -> Path:
    """
    Compile files into a folder and return it.

    Raises:
        CompileError: there is no ``javac`` in PATH, or it failed.
    """
    javac = shutil.which("javac")
    if javac is None:
        message = f"there is no javac (of a JDK {RELEASE} or newer) in PATH"
        raise CompileError(message)
    command = [javac, "--release", RELEASE, "-proc:none", "-nowarn"]
    command += ["-encoding", "UTF-8", "-d", str(folder), *options, *map(str, files)]
    done = subprocess.run(  # noqa: S603 - our own command line
        command, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode:
        message = f"{javac} failed: {done.stderr.strip()[-2000:]}"
        raise CompileError(message)
    return folder


def _declarations(folder: Path) -> Iterator[Path]:
    """Yield the declarations of Spark's types that the shim uses, a file each."""
    one = r"^(package .*?^public .*?(?:class|interface|enum) (\w+).*?)(?=^package |\Z)"
    found = re.findall(one, API.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for number, (text, name) in enumerate(found):
        file = folder / str(number) / f"{name}.java"
        file.parent.mkdir(parents=True)
        file.write_text(text, "utf-8")
        yield file


def _pack(folder: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as made:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = file.relative_to(folder).as_posix()
            made.writestr(zipfile.ZipInfo(name, _SAME_DATE), file.read_bytes())
