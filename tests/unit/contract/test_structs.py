"""The types that we give kafka-python's values are theirs, field by field."""

import ast
from pathlib import Path

import pytest

from safeconsumer._kafka import structs


@pytest.mark.parametrize("name", ["ConsumerRecord", "TopicPartition"])
def test_the_fields_are_upstreams(name):
    """A type checker reads ours; what runs is kafka-python's."""
    tree = ast.parse(Path(structs.__file__).read_text("utf-8"))
    (ours,) = (
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef) and one.name == name
    )
    fields = [one.target for one in ours.body if isinstance(one, ast.AnnAssign)]
    theirs = getattr(structs, name)
    assert theirs.__module__.startswith("kafka.")
    assert tuple(ast.unparse(one) for one in fields) == theirs._fields
