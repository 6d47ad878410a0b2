"""
Compiles the shim; its jar is kept in the repository beside the sources.

``python -m tests.harness.spark.shim`` rebuilds the jar, with the ``javac`` in ``PATH``
and the jars of ``SPARK_HOME`` or of the installed pyspark. With ``--check`` the command
changes nothing, but fails if a rebuilt jar would differ. Compiling against any Spark
from 3.5 to 4.2 gives the same classes, byte for byte; another release of ``javac`` may
give other classes. The jar's manifest therefore records the JDK and the digest of the
sources.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from safeconsumer.spark import platforms, provision

SOURCES = provision.JAR.parent / "src" / "main"
RELEASE = str(platforms.JAVA)
MANIFEST = "META-INF/MANIFEST.MF"
_SAME_DATE = (1980, 1, 1, 0, 0, 0)  # makes the jar reproducible


def digest(sources=SOURCES):
    """Return a digest of the names and contents of all source files."""
    found = hashlib.sha256()
    for file in sorted(path for path in sources.rglob("*") if path.is_file()):
        found.update(file.relative_to(sources).as_posix().encode())
        found.update(file.read_bytes())
    return found.hexdigest()


def facts(jar):
    """Return the entries of a jar's manifest, such as the sources' digest and the JDK."""
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(MANIFEST).decode()
    return dict(line.split(": ", 1) for line in text.splitlines() if line)


def compiled(target, sources=SOURCES):
    """Compile these sources into a jar at the path ``target``; return the path."""
    javac = shutil.which("javac")
    jars = [home / "jars" for home in platforms.spark_homes()]
    if javac is None or not any(one.is_dir() for one in jars):
        sys.exit(f"this needs javac of a JDK {RELEASE} or newer in PATH, and a Spark")
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch)
        command = [javac, "--release", RELEASE, "-proc:none", "-nowarn", "-encoding"]
        command += ["UTF-8", "-cp", ":".join(f"{one}/*" for one in jars), "-d", scratch]
        command += sorted(str(one) for one in sources.rglob("*.java"))
        subprocess.run(command, check=True)  # noqa: S603 - our own command line
        shutil.copytree(sources / "resources", classes, dirs_exist_ok=True)
        manifest = {
            "Manifest-Version": "1.0",
            "Build-Jdk": _jdk(javac),
            # A line may have at most 72 bytes; this line has exactly 72.
            "Source": digest(sources),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in manifest.items())
        (classes / MANIFEST).write_text(lines + "\r\n", newline="")
        _pack(classes, target)
    return target


def _jdk(javac):
    """Return the compiler's release, such as 17."""
    command = [javac, "-version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own
    return re.search(r"javac (\d+)", shown.stdout + shown.stderr)[1]


def _pack(folder, jar):
    names = sorted(one for one in folder.rglob("*") if one.is_file())
    # Java requires that the manifest comes first
    names.sort(key=lambda one: one.name != Path(MANIFEST).name)
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as made:
        for file in names:
            name = file.relative_to(folder).as_posix()
            entry = zipfile.ZipInfo(name, _SAME_DATE)
            made.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)


def contents(jar):
    """Return the content of each file in a jar, by file name."""
    with zipfile.ZipFile(jar) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def check():
    """Return why the jar in the checkout does not match its sources; empty if it does."""
    if facts(provision.JAR)["Source"] != digest():
        return f"{provision.JAR} is not of its sources: make it anew (this, bare)"
    with tempfile.TemporaryDirectory() as scratch:
        made = compiled(Path(scratch, "made.jar"))
        is_same_jdk = facts(made)["Build-Jdk"] == facts(provision.JAR)["Build-Jdk"]
        if is_same_jdk and contents(made) != contents(provision.JAR):
            return f"{provision.JAR} has other classes than its sources make"
    return ""


def main(asked):
    if asked != ["--check"]:
        compiled(provision.JAR)
    elif why := check():
        sys.exit(why)


if __name__ == "__main__":
    main(sys.argv[1:])
