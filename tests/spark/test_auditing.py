"""
The audit as a Spark job.
"""

from pathlib import Path
from typing import Any

import pytest

from safeconsumer.audit.checker import Settings
from safeconsumer.cli.audit import _here
from safeconsumer.spark.auditing import audit
from tests.audit.bad import BAD, GOOD
from tests.cli.test_audit import written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_spark_judges_as_the_reference_does(tmp_path: Path, spark: Any) -> None:  # noqa: ANN401 - pyspark's
    """
    S5: the same rows for every bad and every good fleet, and the same troubles.
    """
    for number, make in enumerate((*BAD, *GOOD)):
        folder = written(tmp_path / str(number), make())
        (folder / "broken.journal").write_text('{"journal": 9}\n')
        paths = sorted(folder.iterdir())
        assert audit(spark, paths, Settings()) == _here(paths, Settings())
