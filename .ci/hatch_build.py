"""
What hatchling asks us for when it builds: the Spark shim's jar, and links that work.
"""

import os
import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_JAR = "safeconsumer/spark/jvm/safekafka.jar"


class ShimHook(BuildHookInterface[Any]):
    """
    Compiles the shim into the wheel, or says that the wheel is without it.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """
        Add the jar; an editable installation compiles it when Spark is first used.
        """
        self._scratch = tempfile.TemporaryDirectory()
        if version == "editable":
            return
        # By its path: the package around it needs what is not here.
        compiling = runpy.run_path(f"{self.root}/safeconsumer/spark/compiling.py")
        jar = Path(self._scratch.name) / "safekafka.jar"
        try:
            compiling["make_jar"](jar)
        except compiling["CompileError"] as error:
            self.app.display_warning(
                f"this wheel is without the shim for Spark: {error}. Everything but "
                "safeconsumer.spark works; that compiles the shim at first use, where "
                "there is a JDK."
            )
        else:
            build_data["force_include"][str(jar)] = _JAR

    def finalize(
        self,
        version: str,  # noqa: ARG002 - hatchling's signature
        build_data: dict[str, Any],  # noqa: ARG002
        artifact_path: str,  # noqa: ARG002
    ) -> None:
        """
        Remove what was compiled.
        """
        self._scratch.cleanup()


class LinksHook(MetadataHookInterface):
    """
    Gives a build in GitHub Actions its repository's address.

    An index shows the README without the files beside it: its relative links and
    pictures get the address of the commit. Elsewhere nobody knows where the repository
    is published: then there are no ``project.urls``, and the README stays as it is.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """
        Set the README and the addresses.
        """
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
    """
    Pictures are at ``raw``, what is linked at ``shown``; both end in a slash.
    """
    relative = r"\]\((?![a-z]+:|#)"
    text = re.sub(rf"(!\[[^]]*){relative}", rf"\1]({raw}", text)
    return re.sub(relative, f"]({shown}", text)
