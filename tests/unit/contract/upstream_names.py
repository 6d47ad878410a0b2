"""Which names the package uses, and which of them are kafka-python's, by reading both."""

import ast
import collections
import contextlib
import logging
import struct
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import kafka
from attrs import frozen
from kafka import KafkaConsumer, KafkaProducer
from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition

import safeconsumer
from safeconsumer._kafka import compat

# The parts of kafka-python that a consumer is made of, and the face of a producer.
# Messages are not among them: the names of their fields are those of Kafka's protocol.
PARTS = (
    "cluster.py",
    "consumer",
    "coordinator",
    "future.py",
    "net",
    "producer/future.py",
    "producer/kafka.py",
    "protocol/frame.py",
    "protocol/parser.py",
    "record",
    "structs.py",
)

# The modules of ours that know them; compat itself only lists names.
OURS = ("consumer.py", "_kafka")
NOT_READ = ("compat.py",)

# What has a name of theirs may be anything; that of documented values may be relied on.
PLAIN = (
    *(str, bytes, bytearray, memoryview, int, list, dict, set, tuple, Exception, type),
    *(collections.deque, collections.Counter, contextlib.ExitStack, struct.Struct),
    *(logging.Logger, logging.LogRecord),
)
DOCUMENTED = (TopicPartition, OffsetAndMetadata, ConsumerRecord)

# Names that a part of upstream's has as well, but that mean something else here.
ELSEWHERE = {
    "_produce_future": "of what producers sent, of which tests of publishing have some",
    "_sender": "of producers, of which tests of closing have real ones",
    "attach": "a call of our control and of our marks",
    "auth_bytes": "a field of messages",
    "committed": "a call of our hand-over",
    "epoch": "a field of ours",
    "failed": "a call of our hand-over",
    "generation": "a field of our marks and joins",
    "partitions": "a field of messages, and of our view",
    "paused": "a call of our view",
    "records": "a field of messages, and of our choice of a decoder",
    "sorted_partitions": "a function of our events",
    "subscribe": "a call of our public class",
    "user_data": "a field of messages",
    "wait": "a call of conditions and events of threads",
}


@frozen
class Use:
    """
    One place where a name is read, set or overridden.

    Attributes:
        of: what it is an attribute of, as it is written; ``self`` for a definition.
        within: the class of ours around it.
    """

    name: str
    place: str
    of: str
    within: type | None

    @property
    def holder(self) -> str:
        """The last name of what it is an attribute of: ``_net`` of ``self._net``."""
        return self.of.rpartition(".")[2]

    @property
    def on_self(self) -> bool:
        return self.of in {"self", "super()", "cls"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


# What is used


@cache
def uses() -> tuple[Use, ...]:
    """Return every use of a name as an attribute or method in the modules that are read."""
    return tuple(
        use for module, tree in _ours() for use in _used(tree, module, within=None)
    )


@cache
def used_names() -> frozenset[str]:
    """Return the names alone."""
    return frozenset(use.name for use in uses())


def _ours() -> Iterator[tuple[str, ast.Module]]:
    (folder,) = map(Path, safeconsumer.__path__)
    for part in OURS:
        root = folder / part
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            if path.name not in NOT_READ:
                inside = path.relative_to(folder.parent).with_suffix("")
                name = ".".join(inside.parts).removesuffix(".__init__")
                yield name, ast.parse(path.read_text(encoding="utf-8"))


def _used(node: ast.AST, module: str, within: type | None) -> Iterator[Use]:
    for child in ast.iter_child_nodes(node):
        around = within
        if isinstance(child, ast.ClassDef):
            # One that is made in a function cannot be looked up; it counts as nothing.
            around = getattr(within or import_module(module), child.name, None)
        for name, of in _names(child, within):
            yield Use(name, f"{module}:{child.lineno}", of, within)  # type: ignore[attr-defined]  # all have one
        yield from _used(child, module, around)


def _names(node: ast.AST, within: type | None) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Attribute(value=of, attr=name):
            yield name, ast.unparse(of)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if within is not None:
                yield name, "self"
        case ast.Call(
            func=ast.Name(id="getattr" | "setattr" | "hasattr"),
            args=[of, ast.Constant(value=str(name)), *_],
        ):
            yield name, ast.unparse(of)


@cache
def own_names() -> frozenset[str]:
    """Return the names that our own classes define: methods, fields, attributes."""
    return frozenset(
        name
        for _, tree in _ours()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for name in _defined(node)
    )


# What upstream has


@cache
def upstreams() -> frozenset[str]:
    """Return every name that a class of upstream's parts of a consumer defines."""
    (root,) = map(Path, kafka.__path__)
    paths = [path for part in PARTS for path in _files(root / part)]
    return frozenset(
        name
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _defined(node)
        if not name.endswith("__")
    )


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@cache
def names_of(kind: type) -> frozenset[str]:
    """Return every name that a class has of upstream's, inherited ones included."""
    theirs = [each for each in kind.__mro__ if is_upstreams(each)]
    return frozenset(
        name
        for each in theirs
        for defined in ast.walk(_source_of(each.__module__))
        if isinstance(defined, ast.ClassDef) and defined.name == each.__name__
        for name in _defined(defined)
        if not name.endswith("__")
    )


def is_upstreams(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "kafka"


@cache
def _source_of(module: str) -> ast.Module:
    file = sys.modules[module].__file__
    assert file is not None
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the methods, attributes and fields that a class or a namedtuple defines."""
    if isinstance(node, ast.ClassDef):
        for statement in node.body:
            yield from _stated(statement)
        for inner in ast.walk(node):
            match inner:
                case ast.Attribute(
                    value=ast.Name(id="self"), attr=name, ctx=ast.Store()
                ):
                    yield name
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("namedtuple"):
        for inner in ast.walk(node):
            match inner:
                case ast.Constant(value=str(name)):
                    yield name


def _stated(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (each.id for each in targets if isinstance(each, ast.Name))


# What is listed


@cache
def listed() -> frozenset[tuple[type, str]]:
    """Return every class and name in the tables of ``compat``, but for fields of tuples."""
    tables = (compat.ATTRIBUTES, compat.RECEIVING_ATTRIBUTES)
    return frozenset(
        {(kind, name) for kind, name, _ in (*compat.METHODS, *compat.RECEIVING_METHODS)}
        | {*compat.COROUTINES, *compat.RECEIVING_COROUTINES}
        | {(kind, name) for each in tables for kind in each for name in each[kind]}
    )


@cache
def is_listed(name: str, kind: type | None = None) -> bool:
    """Tell whether a name is listed: of a class, of a parent or child of it, or of any."""
    fields = {(owner, each) for owner in compat.FIELDS for each in compat.FIELDS[owner]}
    return any(
        name == each
        and (kind is None or issubclass(kind, owner) or issubclass(owner, kind))
        for owner, each in listed() | fields
    )


# What must be listed


def held_by(live: object) -> dict[str, set[type]]:
    """Return which attribute holds which kind of upstream's objects, from a live one on."""
    found: dict[str, set[type]] = collections.defaultdict(set)
    seen, todo = {id(live)}, [live]
    while todo:
        # A copy: the consumer's own thread is at work on it.
        for name, value in dict(getattr(todo.pop(), "__dict__", {})).items():
            if is_upstreams(type(value)):
                found[name].add(type(value))
                if id(value) not in seen:
                    seen.add(id(value))
                    todo.append(value)
    return found


def must_be_listed(use: Use, held: dict[str, set[type]]) -> set[type | None]:
    """
    Return the classes of upstream's of which a name must be listed, used like this.

    On ``self`` that is the class around it; of what a known attribute holds, the class
    of that. Where only the name is known it is None, for any class.
    """
    if use.name.endswith("__"):
        return set()
    if use.on_self:
        kinds = {use.within} if use.within is not None else set()
        return {kind for kind in kinds if _is_hidden(use.name, kind)}
    kinds = {kind for kind in held.get(use.holder, ()) if use.name in names_of(kind)}
    if kinds or use.holder == "consumer":
        kinds = kinds or {KafkaConsumer}
        return {kind for kind in kinds if _is_hidden(use.name, kind)}
    is_theirs = use.name in upstreams() and not _is_plain(use.name)
    return {None} if is_theirs and use.name not in ELSEWHERE else set()


def _is_hidden(name: str, kind: type) -> bool:
    is_face = not is_private(name) and any(
        issubclass(kind, face) and hasattr(face, name)
        for face in (KafkaConsumer, KafkaProducer)
    )
    return name in names_of(kind) and not is_face


def _is_plain(name: str) -> bool:
    is_documented = any(name in kind._fields for kind in DOCUMENTED)
    return is_documented or any(hasattr(kind, name) for kind in PLAIN)
