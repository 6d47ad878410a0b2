"""What hatchling asks us for when it builds: compiled code, and links that work."""

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
# 1: for a wheel that any platform can use, beside those of each platform.
_PURE = "SAFECONSUMER_PURE_PYTHON"
# Without the global interpreter lock Python has no stable interface: a wheel for each.
_IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class CompilingHook(BuildHookInterface[Any]):
    """Compiles the decoder into the wheel, or says that it is without."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what was compiled; an editable installation has it in its sources."""
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
                # Beside it first: other environments may be using the one there is.
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
            # hatchling knows how index and installers call this Python and platform.
            tag = self.build_config.builder.get_best_matching_tag()
            *_, platform = tag.split("-")
            build_data["tag"] = tag if _IS_FREE_THREADED else f"cp311-abi3-{platform}"

    def _decoder(self) -> Path:
        # Not at the top: it is only needed here, and may be missing like a compiler.
        from setuptools import Distribution, Extension  # noqa: PLC0415

        sources = sorted(Path(self.root, _DECODER).parent.glob("*.[ch]"))
        content = b"".join(source.read_bytes() for source in sources)
        extension = Extension(
            _DECODER.replace("/", "."),
            [str(source) for source in sources if source.suffix == ".c"],
            # what it was made of, so that a stale one is not used
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
        """Remove what was compiled."""
        self._scratch.cleanup()


class LinksHook(MetadataHookInterface):
    """
    Gives a build in GitHub Actions its repository's address.

    An index shows the README without the files beside it: its relative links and
    pictures get the address of the commit. Elsewhere nobody knows where the repository
    is published: then there are no ``project.urls``, and the README stays as it is.
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
    """Pictures are at ``raw``, what is linked at ``shown``; both end in a slash."""
    relative = r"\]\((?![a-z]+:|#)"
    text = re.sub(rf"(!\[[^]]*){relative}", rf"\1]({raw}", text)
    return re.sub(relative, f"]({shown}", text)
