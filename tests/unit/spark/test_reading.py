"""Every field of a journal entry is a column of the table of journals."""

import re

from msgspec import inspect, structs

from safeconsumer.audit.entries import EVENTS
from safeconsumer.spark.reading import SCHEMA

# Columns from the file and its first line, and the columns that replace "tp".
OTHERS = {"file": "string", "member": "string", "group": "string", "e": "string"}
OTHERS |= {"topic": "string", "partition": "bigint"}
SIMPLE = {
    inspect.IntType: "bigint",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
}


def sparks(kind):
    """Return the Spark type that corresponds to a field's type."""
    match kind:
        case inspect.UnionType(types=types):
            found = {sparks(one) for one in types} - {""}
            return found.pop() if len(found) == 1 else "string"
        case inspect.NoneType():
            return ""
        case inspect.ListType(item_type=item) | inspect.TupleType(item_types=(item, _)):
            return f"array<{sparks(item)}>"
        case inspect.DictType(key_type=key, value_type=value):
            return f"map<{sparks(key)},{sparks(value)}>"
    return SIMPLE[type(kind)]


def test_every_field_of_an_entry_has_a_column():
    columns = dict(re.findall(r"`(\w+)` (\S+?)(?:, |$)", SCHEMA))
    spelled = {"timestamp": "double", "int": "bigint"}
    columns = {name: spelled.get(kind, kind) for name, kind in columns.items()}
    fields = {}
    for entry in EVENTS.values():
        for one in structs.fields(entry):
            kind = sparks(inspect.type_info(one.type))
            fields.setdefault(one.encode_name, set()).add(kind)
    del fields["tp"]
    expected = {name: {kind} for name, kind in OTHERS.items()} | fields
    assert {name: {kind} for name, kind in columns.items()} == expected
