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

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_spark_judges_as_the_reference_does(tmp_path: Path, spark: Any) -> None:  # noqa: ANN401 - pyspark's
    """
    S5: the same rows for every bad and every good fleet, and the same troubles.
    """
    for number, make in enumerate((*BAD, *GOOD)):
        for place, told in enumerate(make()):
            text = told.text().replace("orders", f"orders{number}")
            (tmp_path / f"{number}-{place}.journal").write_text(text)
    (tmp_path / "broken.journal").write_text('{"journal": 9}\n')
    paths = sorted(tmp_path.iterdir())
    rows, troubles = audit(spark, paths, Settings())
    assert (rows, troubles) == _here(paths, Settings())
    broken = {row.topic: row.check for row in rows if row.violations}
    assert broken == {
        f"orders{number}": make.__name__.partition("_")[0].upper()
        for number, make in enumerate(BAD)
    }
    assert "version 9" in troubles[0]
