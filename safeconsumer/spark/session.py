"""Connects a session's streams to their holds, through py4j."""

import importlib
import secrets
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from safeconsumer.errors.base import SparkSetupError
from safeconsumer.events.dispatch import Hook
from safeconsumer.spark import platforms, provision
from safeconsumer.spark.bridge import DECIDER, PROTOCOL, Bridge
from safeconsumer.spark.controller import Controller, ledger
from safeconsumer.spark.folders import CheckpointSkips
from safeconsumer.spark.java_clients import (
    JavaClients,
    JavaGroup,
    errors,
    java_class,
    root_cause,
)
from safeconsumer.spark.opening import Opening
from safeconsumer.spark.queries import SparkQueries

_SHIM = "safeconsumer.spark.SafeKafkaProvider"
_OFFICIAL = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
# Spark passes such a setting of a session to each of its sources as an option.
_SETTING = f"spark.datasource.safekafka.{DECIDER}"
_LOOPBACK = "127.0.0.1"
# The beginning of the shim's message about a Python process that answers too slowly.
_LATE = "no decision within"

# The controllers of this process, by the unique names of their bridges.
_controllers: dict[str, Controller] = {}


def register(spark: Any, *, hooks: tuple[Hook, ...] | None = None) -> Controller:  # noqa: ANN401 - pyspark is optional
    """
    Make ``format("safekafka")`` usable in a session, and return the session's handle.

    A second call for the same session returns the same handle. Other sessions of the
    same JVM, of this process or another, are registered separately, and their handles
    do not share holds. :meth:`~Controller.close` releases a session.

    Args:
        spark: a classic ``SparkSession``; its ``spark.jars`` or ``spark.jars.packages``
            must contain the values of :func:`~safeconsumer.spark.jars` and
            :func:`~safeconsumer.spark.packages`.
        hooks: functions that receive events; if None, events become log lines, as with
            :class:`SafeConsumer`. Only the hooks of the first call are used.

    Raises:
        SparkSetupError: the session is a Spark Connect session, was stopped, is older
            than Spark 3.5, runs on a Java older than 17, or lacks the shim or the
            connector in the right version; or another process has registered it.
    """
    gateway = _gateway(spark)
    _refuse_stopped(spark)
    known = _controllers.get(spark.conf.get(_SETTING, ""))
    if known is not None:
        return known
    _check(spark, gateway)
    _refuse_second_process(spark, gateway)
    _forget_stopped()
    own = ledger(hooks)
    opening = Opening(
        own,
        partial(JavaClients, gateway.jvm),
        partial(CheckpointSkips, spark),
        partial(JavaGroup, gateway.jvm),
    )
    controller = Controller(
        opening.stream, own, SparkQueries(spark), skip_requests=opening.skip_requests
    )
    decider = controller.bridge.decider
    connection = _connect(gateway, controller.bridge)
    java_class(gateway.jvm, _SHIM).register(decider, connection.function)
    spark.conf.set(_SETTING, decider)
    _controllers[decider] = controller
    controller.is_over = partial(_is_stopped, spark.sparkContext)
    controller.on_close = partial(_free, gateway, decider, connection)
    return controller


def _is_stopped(context: Any) -> bool:  # noqa: ANN401 - pyspark is optional
    return getattr(context, "_jsc", None) is None


def _refuse_stopped(spark: Any) -> None:  # noqa: ANN401 - pyspark is optional
    if _is_stopped(spark.sparkContext):
        message = (
            "this session was stopped: make a new one, "
            "safeconsumer.spark.builder().getOrCreate(), and register that"
        )
        raise SparkSetupError(message)


def _forget_stopped() -> None:
    """
    Release the connections of this process's sessions that were stopped.

    A stream notices that its session was stopped only at its next trigger, and then
    reports its own end over the connection. A connection with such an open stream is
    kept, and a later call of this function releases it.
    """
    for one in tuple(_controllers.values()):
        if one.is_over() and not one.bridge.streams():
            one.close()


def _free(gateway: Any, decider: str, connection: "_Connection") -> None:  # noqa: ANN401 - py4j is untyped
    del _controllers[decider]
    with suppress(*errors(TypeError)):  # the JVM may have exited
        java_class(gateway.jvm, _SHIM).forget(decider)
        connection.client.shutdown()
    connection.server.shutdown()


@frozen
class _Connection:
    """A connection over which the JVM calls a :class:`Bridge` in this process."""

    function: Any
    client: Any
    server: Any


def _refuse_second_process(spark: Any, gateway: Any) -> None:  # noqa: ANN401 - py4j is untyped
    other = spark.conf.get(_SETTING, "")
    if not other:
        return
    state = "is alive"
    try:
        java_class(gateway.jvm, _SHIM).hello(other)
    except errors() as error:
        if _LATE not in root_cause(error)[1]:
            return  # the other process has exited, and its held streams remain held
        state = "does not answer in time (it may be suspended)"
    message = (
        f"another process decides for the streams of this session, and {state}: "
        "register a session of your own, safeconsumer.spark.register("
        "spark.newSession()), and describe your streams with that one"
    )
    raise SparkSetupError(message)


def _connect(gateway: Any, bridge: Bridge) -> _Connection:  # noqa: ANN401 - py4j is untyped
    """
    Open a separate connection over which the JVM calls the bridge.

    The JVM has only one shared callback client. If another process that uses the same
    JVM took over that client, as pyspark does for foreachBatch, that process would
    answer instead.
    """
    py4j = importlib.import_module("py4j.java_gateway")
    token = secrets.token_urlsafe(32)
    parameters = py4j.CallbackServerParameters(
        address=_LOOPBACK,
        port=0,
        daemonize=True,
        daemonize_connections=True,
        auth_token=token,
    )
    pool = py4j.PythonProxyPool()
    server = py4j.CallbackServer(pool, None, callback_server_parameters=parameters)
    server.start()
    java = gateway.jvm
    client = java.py4j.CallbackClient(
        server.get_listening_port(),
        java.java.net.InetAddress.getByName(_LOOPBACK),
        token,
        0,  # connections may be idle for any length of time
        java.java.util.concurrent.TimeUnit.SECONDS,
        java.javax.net.SocketFactory.getDefault(),
        False,  # noqa: FBT003 - Java's; the bridge lives as long as this process
        0,
    )
    kinds = gateway.new_array(java.java.lang.Class, 1)
    kinds[0] = java.java.lang.Class.forName("java.util.function.BiFunction")
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    proxy = java.py4j.Gateway(None, client).createProxy(loader, kinds, pool.put(bridge))
    return _Connection(proxy, client, server)


def _gateway(spark: Any) -> Any:  # noqa: ANN401 - py4j is untyped
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        message = (
            "safekafka cannot run over Spark Connect: the server cannot call back into "
            "this client. On Spark 4.2 and newer register the source in pure Python, "
            "spark.dataSource.register(safeconsumer.spark.python.SafeKafkaSource), and "
            "place holds by safeconsumer pause; else use a classic session "
            "(SparkSession.builder.master(...), spark-submit)"
        )
        raise SparkSetupError(message)
    context = getattr(spark, "sparkContext", None)
    gateway = getattr(context, "_gateway", None)
    if gateway is None:
        message = f"register() takes a SparkSession, not {type(spark).__name__}"
        raise SparkSetupError(message)
    return gateway


def _check(spark: Any, gateway: Any) -> None:  # noqa: ANN401 - py4j is untyped
    version = platforms.Version.parse(str(spark.version))
    java = gateway.jvm.System.getProperty("java.specification.version")
    platforms.check_runtime(version, java)
    if _loaded(gateway, _SHIM) is None:
        message = (
            'this session lacks the shim: build it with .config("spark.jars", '
            "safeconsumer.spark.jars()) before it starts, or name them to spark-submit "
            "by --jars"
        )
        raise SparkSetupError(message)
    _check_protocol(gateway)
    official = _loaded(gateway, _OFFICIAL)
    if official is None:
        message = (
            "this session lacks Spark's Kafka connector: build it with "
            f'.config("spark.jars.packages", "{provision.packages()}"), or name its '
            "jars in spark.jars (safeconsumer.spark.jars(FOLDER) does)"
        )
        raise SparkSetupError(message)
    source = official.getProtectionDomain().getCodeSource()
    jar = Path(source.getLocation().getPath()).name
    scala = java_class(gateway.jvm, "scala.util.Properties").versionNumberString()
    platforms.check_connector(jar, version, ".".join(scala.split(".")[:2]))


def _check_protocol(gateway: Any) -> None:  # noqa: ANN401 - py4j is untyped
    try:
        spoken = str(java_class(gateway.jvm, _SHIM).protocol())
    except errors(TypeError):  # the first protocol did not report a version
        spoken = "1"
    if spoken != PROTOCOL:
        message = (
            f"the safekafka jar of this session speaks protocol {spoken}, the "
            f"installed safeconsumer {PROTOCOL}: they must be of one version. "
            "safeconsumer.spark.jars() names the jar of this one"
        )
        raise SparkSetupError(message)


def _loaded(gateway: Any, name: str) -> Any | None:  # noqa: ANN401 - py4j is untyped
    protocol = importlib.import_module("py4j.protocol")
    loader = gateway.jvm.Thread.currentThread().getContextClassLoader()
    try:
        return loader.loadClass(name)
    except protocol.Py4JJavaError:  # ClassNotFoundException
        return None
