"""Hooks for hatchling's builds: compiled code, and links that work on an index."""

import os
import re
import sysconfig
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_DECODER = "safeconsumer/_kafka/decoding/_batches"
# The value 1 builds a wheel for any platform, in addition to those for each platform.
_PURE = "SAFECONSUMER_PURE_PYTHON"
# Without the global interpreter lock Python has no stable ABI, so each version needs a
# wheel.
_IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class CompilingHook(BuildHookInterface[Any]):
    """Compiles the decoder into the wheel, or reports that the wheel lacks it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled decoder; an editable installation has it in its sources."""
        self._scratch = tempfile.TemporaryDirectory()
        in_sources = Path(self.root, _DECODER).parent
        if os.environ.get(_PURE, "0") == "0":
            self._add_decoder(version, in_sources, build_data)
        elif version == "editable":
            for old in in_sources.glob("_batches*.so"):
                old.unlink()

    def _add_decoder(
        self, version: str, in_sources: Path, build_data: dict[str, Any]
    ) -> None:
        try:
            library = self._decoder()
            if version == "editable":
                # Write a new file first, because other environments may be using the
                # existing one.
                beside = in_sources / f"_batches.{os.getpid()}.so"
                beside.write_bytes(library.read_bytes())
                beside.replace(in_sources / library.name)
        except Exception as error:  # noqa: BLE001 - whatever a compiler, or its absence, raises
            self.app.display_warning(
                f"without the compiled decoder: {error}. Everything works; a record "
                "costs what it costs with kafka-python."
            )
            return
        if version != "editable":
            name = Path(_DECODER).with_name(library.name).as_posix()
            build_data["force_include"][str(library)] = name
            build_data["pure_python"] = False
            # hatchling knows the tags that the index and installers use for this Python
            # and platform.
            tag = self.build_config.builder.get_best_matching_tag()
            *_, platform = tag.split("-")
            build_data["tag"] = tag if _IS_FREE_THREADED else f"cp311-abi3-{platform}"

    def _decoder(self) -> Path:
        # Not at the top, because setuptools is only needed here, and may be missing.
        from setuptools import Distribution, Extension  # noqa: PLC0415

        sources = sorted(Path(self.root, _DECODER).parent.glob("*.[ch]"))
        content = b"".join(source.read_bytes() for source in sources)
        extension = Extension(
            _DECODER.replace("/", "."),
            [str(source) for source in sources if source.suffix == ".c"],
            # the digest of the sources, so that a stale decoder is not used
            define_macros=[("SOURCE", f'"{sha256(content).hexdigest()}"')],
            py_limited_api=not _IS_FREE_THREADED,
        )
        command = Distribution({"ext_modules": [extension]}).get_command_obj(
            "build_ext"
        )
        command.build_lib = command.build_temp = self._scratch.name
        command.ensure_finalized()
        command.run()
        return Path(command.get_ext_fullpath(extension.name))

    def finalize(
        self,
        version: str,  # noqa: ARG002 - hatchling's signature
        build_data: dict[str, Any],  # noqa: ARG002
        artifact_path: str,  # noqa: ARG002
    ) -> None:
        """Remove the compiled files."""
        self._scratch.cleanup()


class LinksHook(MetadataHookInterface):
    """
    Gives a build in GitHub Actions its repository's address.

    An index shows the README without the other files, so relative links and pictures
    get the address of the commit. In other builds the repository's address is unknown:
    then there are no ``project.urls``, and the README is not changed.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README and the addresses."""
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["urls"] = {}
        if repository := os.environ.get("GITHUB_REPOSITORY"):
            server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
            home = f"{server}/{repository}"
            commit = os.environ.get("GITHUB_SHA", "HEAD")
            metadata["urls"] = _addresses(home)
            text = _absolute(text, f"{home}/raw/{commit}/", f"{home}/blob/{commit}/")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _addresses(home: str) -> dict[str, str]:
    return {
        "Homepage": home,
        "Source": home,
        "Issues": f"{home}/issues",
        "Changelog": f"{home}/blob/HEAD/CHANGELOG.md",
        "Security": f"{home}/security/policy",
    }


def _absolute(text: str, raw: str, shown: str) -> str:
    """Use ``raw`` for pictures and ``shown`` for other links; both end in a slash."""
    relative = r"\]\((?![a-z]+:|#)"
    text = re.sub(rf"(!\[[^]]*){relative}", rf"\1]({raw}", text)
    return re.sub(relative, f"]({shown}", text)
