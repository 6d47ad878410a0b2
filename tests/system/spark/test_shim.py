"""The shim is compiled against the installed Spark, and is in a wheel that is built there."""

import re
import sysconfig
import zipfile

import pytest

from safeconsumer.spark import compiling
from tests.system.packaging.test_building import (
    DECODER,
    JAR,
    ROOT,
    build,
    files_below,
    package_in,
)

pytestmark = [pytest.mark.spark, pytest.mark.nightly]  # .ci/wheel looks at it by day


def test_the_same_sources_make_the_same_jar(tmp_path):
    """It can be built again and compared; nothing but the jar is left."""
    first, second = tmp_path / "a" / "x.jar", tmp_path / "b" / "x.jar"
    compiling.make_jar(first)
    compiling.make_jar(second)
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in first.parent.iterdir()] == ["x.jar"]


def test_a_wheel_has_the_package_and_what_is_compiled(tmp_path):
    """Every file of it, no test, no cache; decoder and jar, which nobody built by hand."""
    wheel, _ = build(tmp_path, "wheel")
    assert package_in(wheel) == files_below("safeconsumer") | {DECODER, JAR}
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    assert wheel.name.endswith(f"-cp311-abi3-{platform}.whl"), "for each Python"
    with zipfile.ZipFile(wheel) as opened, opened.open(JAR) as inner:
        jar = zipfile.ZipFile(inner).namelist()
    assert "safeconsumer/spark/SafeKafkaProvider.class" in jar
    services = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
    assert services in jar
    assert not (ROOT / JAR).exists()
