"""
Every private name that we use is defined by the kafka-python class of its object.

Each push runs these tests on every supported version, and each night on the lowest, the
newest and kafka-python's main branch.
"""

import ast
import inspect
import textwrap
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from kafka.consumer.fetcher import ExceptionMetadata
from kafka.coordinator.base import Generation
from kafka.coordinator.heartbeat import Heartbeat
from kafka.net.connection import KafkaConnection
from kafka.producer.sender import Sender
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.util import Timer

import safeconsumer
from safeconsumer import SafeConsumer
from safeconsumer._kafka import network
from safeconsumer._kafka.decoding.receiving import ReceivingManager
from safeconsumer._kafka.fixes.cluster import PauseSafeCluster
from safeconsumer._kafka.fixes.unclosed import ClosingClient
from safeconsumer._kafka.fixes.waits import InterruptibleSelector
from safeconsumer._kafka.of_group.control_reader import LastFetchTimes
from safeconsumer._kafka.pausing.coordinator import PauseSafeCoordinator
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from tests.harness.listing import short

# The names under which our code uses each part of a client, with the part's class. This is
# our subclass, if we have one, because it also has upstream's names. If two classes are
# listed, the object may be of either class.
CALLED = {
    "admin": (KafkaAdminClient,),
    "client": (SafeConsumer, ClosingClient),
    "cluster": (PauseSafeCluster,),
    "connection": (KafkaConnection,),
    "consumer": (SafeConsumer,),
    "coordinator": (PauseSafeCoordinator,),
    "_fetcher": (PauseSafeFetcher, LastFetchTimes),
    "generation": (Generation,),
    "heartbeat": (Heartbeat,),
    "manager": (ReceivingManager,),
    "net": (InterruptibleSelector,),
    "old": (OwnedPartitionState,),
    "sender": (Sender,),
    "state": (OwnedPartitionState,),
    "subscription": (LedgerSubscription, ConsumerProtocolSubscription),
    "subscriptions": (LedgerSubscription,),
    "timer": (Timer,),
}


def paths(root):
    return [root] if root.is_file() else sorted(root.rglob("*.py"))


class Played(ast.NodeTransformer):
    """Removes code for versions of kafka-python other than the installed one."""

    def visit_If(self, node):
        self.generic_visit(node)
        chosen = self.chosen(node)
        return node if chosen is None else chosen or ast.Pass()

    def visit_IfExp(self, node):
        self.generic_visit(node)
        chosen = self.chosen(node)
        return node if chosen is None else chosen

    @staticmethod
    def chosen(node):
        match node.test:
            case ast.Name(id="HAS_BACKENDS"):
                return node.body if network.HAS_BACKENDS else node.orelse
        return None


@cache
def ours():
    """
    Return our modules that use kafka-python's internals, by name, with their source.

    Code for versions other than the installed one is left out.
    """
    (folder,) = map(Path, safeconsumer.__path__)
    found = [*paths(folder / "consumer.py"), *paths(folder / "_kafka")]
    names = [
        ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        for path in found
    ]
    sources = [
        Played().visit(ast.parse(path.read_text(encoding="utf-8"))) for path in found
    ]
    return list(zip(names, sources, strict=True))


def defined(node):  # noqa: C901 - one case for each shape
    """Yield the methods, attributes and fields that a class or a namedtuple defines."""
    match node:
        case ast.ClassDef(body=body):
            for statement in body:
                match statement:
                    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                        yield name
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        yield name
                    case ast.Assign(targets=[ast.Name(id=name)]):
                        yield name
            for inner in ast.walk(node):
                match inner:
                    case ast.Attribute(
                        value=ast.Name(id="self"), attr=name, ctx=ast.Store()
                    ):
                        yield name
        case ast.Call(func=func) if ast.unparse(func).endswith("namedtuple"):
            for inner in ast.walk(node):
                match inner:
                    case ast.Constant(value=str(name)):
                        yield name


@cache
def names_of(kind):
    """Return every name that a class or one of its base classes defines."""
    found = set(dir(kind))
    for parent in kind.__mro__:
        is_plain = parent.__module__.startswith(("kafka.", "safeconsumer."))
        if is_plain and not hasattr(parent, "_fields"):  # dir() lists the fields
            source = textwrap.dedent(inspect.getsource(parent))
            found.update(defined(ast.parse(source).body[0]))
    return found


def kinds_of(receiver, within):
    """Return the possible classes of an expression, or no class if they are unknown."""
    match receiver:
        case ast.Name(id="self"):
            return within
        case ast.Call(func=ast.Name(id="super"), args=[]):
            return tuple(one for kind in within for one in kind.__bases__)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return CALLED.get(name) or CALLED.get(name.removeprefix("_"), ())
    return ()


def is_of_upstream(kind):
    return any(one.__module__.startswith("kafka.") for one in kind.__mro__)


def looked_up():
    """Yield each name that our code looks up, its location, and its possible classes."""
    for module, tree in ours():
        found = vars(import_module(module))
        classes = {one: found.get(one.name) for one in classes_of(tree)}
        owner = {
            inner: kind
            for one, kind in classes.items()
            if isinstance(kind, type) and is_of_upstream(kind)
            for inner in ast.walk(one)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                within = (owner[node],) if node in owner else ()
                if kinds := kinds_of(node.value, within):
                    yield node.attr, f"{module}: {ast.unparse(node)}", kinds


def classes_of(tree):
    return [one for one in tree.body if isinstance(one, ast.ClassDef)]


def test_class_defines_every_name_that_our_code_looks_up_on_it():
    """A name that only another kafka-python class defines does not count."""
    uses = list(looked_up())
    assert len(uses) > 800
    missing = {
        where: [kind.__name__ for kind in kinds]
        for name, where, kinds in uses
        if not any(name in names_of(kind) for kind in kinds)
    }
    assert missing == {}


@cache
def overridden():
    """Return each of our overrides with the upstream method, keyed by the override's name."""
    found = {}
    modules = [import_module(name) for name, _ in ours()]
    for module in modules:
        for kind in vars(module).values():
            if not isinstance(kind, type) or kind.__module__ != module.__name__:
                continue
            for name, method in vars(kind).items():
                theirs = next(
                    (
                        vars(parent)[name]
                        for parent in kind.__mro__[1:]
                        if parent.__module__.startswith("kafka.")
                        and name in vars(parent)
                    ),
                    None,
                )
                if inspect.isfunction(method) and inspect.isfunction(theirs):
                    found[f"{kind.__qualname__}.{name}"] = method, theirs
    return found


@pytest.mark.parametrize(
    "name", [name for name in overridden() if "__" not in name], ids=short
)
def test_override_begins_with_upstreams_parameters(name):
    """An override is a coroutine function if and only if the upstream method is one."""
    method, theirs = overridden()[name]
    taken = inspect.signature(method).parameters.values()
    given = inspect.signature(theirs).parameters
    assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(theirs)
    if any(one.kind is one.VAR_POSITIONAL for one in taken):
        return
    names = [one.name for one in taken if one.kind is not one.KEYWORD_ONLY]
    own = set(names) - set(given)
    assert [one for one in names if one in given] == list(given)[: len(given)]
    assert all(one.default is not one.empty for one in taken if one.name in own), (
        "upstream does not pass it"
    )


def test_exception_metadata_has_the_fields_that_we_set():
    assert ExceptionMetadata._fields == ("partition", "fetched_offset", "exception")


@pytest.mark.parametrize("name", ["ConsumerRecord", "TopicPartition"])
def test_typed_record_and_partition_have_upstreams_fields(name):
    """A type checker reads our classes, but kafka-python's classes are used at run time."""
    structs = import_module("safeconsumer._kafka.structs")
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
