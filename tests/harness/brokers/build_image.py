"""
A broker's image from Kafka's jars and this machine's Java, without any registry.

``python -m tests.harness.brokers.build_image`` builds it if the engine has none by its
name. Where a registry is reachable the tests may use apache/kafka:4.1.0 instead: set
``SAFECONSUMER_TEST_IMAGE``; it obeys the same variables. Debian and Ubuntu only: which
files belong to the C library is asked of dpkg. Needs the ``docker`` command, but no
package beyond Python's own.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.harness.brokers import jars
from tests.harness.brokers.settings import IMAGE

_PARTS = Path(__file__).with_name("image")
# What the start script and Kafka's own scripts call, and what helps in a shell.
_PROGRAMS = (
    *("bash", "sh", "cat", "ls", "cp", "mv", "rm", "mkdir", "ln", "sleep", "grep"),
    *("sed", "awk", "env", "id", "hostname", "head", "tail", "date", "kill", "ps"),
    *("true", "touch", "chmod", "df", "du", "find", "wc"),
)
_PACKAGES = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g")
_FOLDERS = (
    *(
        "bin",
        "dev",
        "etc/kafka/docker",
        "mnt/shared/config",
        "opt/java",
        "proc",
        "root",
    ),
    *("opt/kafka/config", "sys", "tmp", "usr/bin", "var/lib/kafka/data"),
)
_CHANGES = [
    "ENV PATH=/opt/java/bin:/usr/bin:/bin",
    "ENV LANG=C.UTF-8",
    "EXPOSE 9092",
    'CMD ["/etc/kafka/docker/run"]',
]


def build(image: str = IMAGE) -> bool:
    """
    Build the image if it is missing; True if it was built now.

    Raises:
        RuntimeError: there is no Docker or Java here, or Kafka's jars cannot be had.

    """
    if _docker("images", "--quiet", image):
        return False
    with tempfile.TemporaryDirectory(prefix="safeconsumer-image-") as scratch:
        root, archive = Path(scratch) / "root", Path(scratch) / "image.tar"
        _lay_out(root)
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=_owned_by_root)
        changes = [f"--change={change}" for change in _CHANGES]
        _docker("import", *changes, str(archive), image)
    return True


def _lay_out(root: Path) -> None:
    """Put together the file system of the image."""
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    shutil.copytree(jars.fetch(), root / "opt/kafka/libs")
    home = _java_home()
    _copy_java(home, root / "opt/java")
    programs = _copy_programs(root)
    _copy_libraries(root, home, programs)
    _copy_configuration(root)


def _java_home() -> Path:
    java = shutil.which("java")
    if java is None:
        msg = "no java in PATH to put into the image"
        raise RuntimeError(msg)
    said = _output(java, "-XshowSettings:properties", "-version")
    found = re.search(r"java\.home = (.+)", said)
    if found is None:
        msg = f"java does not tell its home:\n{said}"
        raise RuntimeError(msg)
    return Path(found[1].strip())


def _copy_java(home: Path, target: Path) -> None:
    # Links are followed: Debian keeps conf and certificates in /etc. src.zip is a
    # link to nowhere, and ct.sym is for compilers.
    for part in ("bin", "conf", "lib", "release"):
        source = home / part
        if source.is_dir():
            ignore = shutil.ignore_patterns("src.zip", "ct.sym")
            shutil.copytree(
                source, target / part, ignore=ignore, ignore_dangling_symlinks=True
            )
        elif source.exists():
            shutil.copy(source, target / part)


def _copy_programs(root: Path) -> list[Path]:
    found = [Path(path) for name in _PROGRAMS if (path := shutil.which(name))]
    for program in found:
        shutil.copy(program, root / "usr/bin" / program.name)
    for shell in ("sh", "bash"):
        shutil.copy(root / "usr/bin" / shell, root / "bin" / shell)
    return found


def _copy_libraries(root: Path, home: Path, programs: Iterable[Path]) -> None:
    """
    Copy what the programs and Java's own libraries are linked with.

    All of the C library too: some of it is loaded by name only, and without it the
    zstd of Kafka's jars does not load.
    """
    ours = [*programs, home / "bin/java", *home.glob("lib/**/*.so")]
    linked = re.findall(
        r"(?:=> |^\t)(/\S+)", _output("ldd", *map(str, ours)), re.MULTILINE
    )
    packaged = _output("dpkg", "-L", *_PACKAGES).splitlines()
    shared = (line for line in packaged if ".so" in line and "gconv" not in line)
    for name in {*linked, *shared}:
        source = Path(name)
        if source.is_file() and home not in source.parents:
            target = root / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def _copy_configuration(root: Path) -> None:
    etc = root / "etc"
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (etc / "group").write_text("root:x:0:\n")
    (etc / "nsswitch.conf").write_text("hosts: files dns\n")
    own = etc / "kafka/docker"
    (own / "server.properties").touch()
    shutil.copy(_PARTS / "run", own / "run")
    for name in ("log4j2.yaml", "tools-log4j2.yaml"):
        shutil.copy(_PARTS / "log4j2.yaml", own / name)


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _output(*command: str) -> str:
    """Return both outputs of a command; ldd fails for what is no program."""
    done = subprocess.run(  # noqa: S603  our own command line
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def _docker(*arguments: str) -> str:
    """Return what the docker command answers."""
    done = subprocess.run(  # noqa: S603  our own command line
        [shutil.which("docker") or "docker", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        msg = f"docker {arguments[0]} failed: {done.stderr.strip()}"
        raise RuntimeError(msg)
    return done.stdout.strip()


def main() -> int:
    """Build with the engine of ``DOCKER_HOST``, and print what was done."""
    built = build()
    print(f"{IMAGE}: {'built' if built else 'was there'}")  # noqa: T201  its answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
