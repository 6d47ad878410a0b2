"""The shim is compiled against declarations of our own, which must be Spark's."""

from pathlib import Path

import pytest

from safeconsumer.spark import compiling, platforms, provision


def classes_in(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("SafeKafka*.class")
    }


@pytest.mark.spark
def test_spark_itself_gives_the_same_classes(tmp_path: Path) -> None:
    """Byte for byte: a wheel that was built without Spark is no other than one with it."""
    declared = list(compiling._declarations(tmp_path / "api"))
    files = compiling.java_files()
    jars = f"{platforms.spark_jars()}/*"
    without = compiling.compile_classes(tmp_path / "without", [*files, *declared])
    against = compiling.compile_classes(tmp_path / "against", files, "-cp", jars)
    assert len(classes_in(against)) > 1
    assert classes_in(without) == classes_in(against)


@pytest.mark.spark
def test_the_same_sources_make_the_same_jar(tmp_path: Path) -> None:
    """It can be built again and compared; and it is known as one of these sources."""
    first, second = tmp_path / "a" / "x.jar", tmp_path / "b" / "x.jar"
    compiling.make_jar(first)
    compiling.make_jar(second)
    assert first.read_bytes() == second.read_bytes()
    assert provision._is_of_these_sources(first)
    assert [path.name for path in first.parent.iterdir()] == ["x.jar"]
