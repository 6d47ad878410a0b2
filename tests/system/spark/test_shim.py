"""The shim's jar is what the installed Spark and javac make of its sources."""

import re
import sysconfig

import pytest

from safeconsumer.spark import provision
from tests.harness.spark import shim
from tests.system.packaging.test_building import (
    DECODER,
    build,
    files_below,
    package_in,
)

pytestmark = [pytest.mark.spark, pytest.mark.nightly]  # .ci/wheel looks at it by day


def test_the_jar_can_be_made_again(tmp_path):
    """The same bytes with each Spark, by the JDK that it names."""
    made = shim.compiled(tmp_path / "made.jar")
    if shim.facts(made)["Build-Jdk"] != shim.facts(provision.JAR)["Build-Jdk"]:
        pytest.skip("another JDK may make other bytes of the same sources")
    assert shim.contents(made) == shim.contents(provision.JAR)


def test_a_wheel_has_the_package_and_the_decoder(tmp_path):
    """Every file of it, no test, no cache."""
    wheel, _ = build(tmp_path, "wheel")
    assert package_in(wheel) == files_below("safeconsumer") | {DECODER}
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    assert wheel.name.endswith(f"-cp311-abi3-{platform}.whl"), "for each Python"
