"""
Which names the package uses, and which of them are kafka-python's, by reading both.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from attrs import frozen
from kafka import KafkaConsumer
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.coordinator.heartbeat import Heartbeat
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol
from kafka.record.default_records import DefaultRecordBatch

import safeconsumer._kafka
from safeconsumer import consumer
from safeconsumer._kafka import compat

UPSTREAM = (
    KafkaConsumer,
    ClusterMetadata,
    Fetcher,
    Fetcher.PartitionRecords,
    SubscriptionState,
    TopicPartitionState,
    Generation,
    DefaultRecordBatch,
    ConsumerCoordinator,
    Heartbeat,
    KafkaBytes,
    KafkaConnection,
    KafkaConnectionManager,
    KafkaProtocol,
    KafkaSSLTransport,
    KafkaTCPTransport,
    NetworkSelector,
)


# Those that ours are children of.
PARENTS = (
    ClusterMetadata,
    KafkaConsumer,
    Fetcher,
    Fetcher.PartitionRecords,
    SubscriptionState,
    ConsumerCoordinator,
    KafkaBytes,
    KafkaConnectionManager,
    KafkaProtocol,
    KafkaSSLTransport,
    KafkaTCPTransport,
)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


@cache
def private_names_of(*kinds: type) -> frozenset[str]:
    """
    Return every private method, attribute and field of some of upstream's classes.
    """
    names = set()
    parents = {parent for kind in kinds for parent in kind.__mro__}
    for parent in parents - {object, bytearray}:
        slots = getattr(parent, "__slots__", ())
        names |= {*vars(parent), *_set_on_self(parent), *slots}
    return frozenset(filter(is_private, names))


def _set_on_self(kind: type) -> set[str]:
    return {
        node.attr  # type: ignore[attr-defined]  # an Attribute
        for defined in ast.walk(_source_of(kind.__module__))
        if isinstance(defined, ast.ClassDef) and defined.name == kind.__name__
        for node in ast.walk(defined)
        if _is_of_self(node)
    }


@cache
def _source_of(module: str) -> ast.Module:
    file = sys.modules[module].__file__
    assert file is not None
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def is_upstreams(use: "Use") -> bool:
    """
    Tell whether a private name, used so, means something of upstream's.

    On ``self`` only what the classes have that ours are children of.
    """
    return use.name in private_names_of(*(PARENTS if use.on_self else UPSTREAM))


def _is_of_self(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and isinstance(node.ctx, ast.Store)
    )


@cache
def _trees() -> tuple[tuple[str, ast.Module], ...]:
    (folder,) = safeconsumer._kafka.__path__
    paths = [
        *sorted(Path(folder).rglob("*.py")),
        Path(consumer.__file__),
    ]
    return tuple(
        (path.name, ast.parse(path.read_text(encoding="utf-8")))
        for path in paths
        if path.name != "compat.py"
    )


@frozen
class Use:
    """
    One place where a name is read, set or overridden.
    """

    name: str
    place: str
    on_self: bool


@cache
def uses() -> tuple[Use, ...]:
    """
    Return every use of a name as an attribute or method outside ``compat``.
    """
    return tuple(
        Use(name, f"{file}:{line}", on_self)
        for file, tree in _trees()
        for name, line, on_self in _used(tree)
    )


def private_uses() -> tuple[Use, ...]:
    """
    Return those of private names.
    """
    return tuple(use for use in uses() if is_private(use.name))


@cache
def own_names() -> frozenset[str]:
    """
    Return the names that our own classes define: methods, fields, attributes.
    """
    names = set()
    for _, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif _is_of_self(node):
                names.add(node.attr)  # type: ignore[attr-defined]  # an Attribute
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return frozenset(names)


def _used(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            yield node.attr, node.lineno, on_self
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, True


def listed_names() -> frozenset[str]:
    """
    Return every name in the tables of ``compat``.
    """
    return frozenset(
        {name for _, name, _ in (*compat.METHODS, *compat.RECEIVING_METHODS)}
        | {name for _, name in (*compat.COROUTINES, *compat.RECEIVING_COROUTINES)}
        | {name for names in compat.ATTRIBUTES.values() for name in names}
        | {name for names in compat.RECEIVING_ATTRIBUTES.values() for name in names}
    )
