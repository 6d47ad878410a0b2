"""
Making a session's streams obey; only this and ``logins`` touch py4j.
"""

import importlib
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from safeconsumer.errors import SparkSetupError
from safeconsumer.events.dispatch import Hook
from safeconsumer.spark import platforms, provision
from safeconsumer.spark.controller import Controller, ledger
from safeconsumer.spark.logins import JvmLogins
from safeconsumer.spark.opening import open_stream

_SHIM = "safeconsumer.spark.SafeKafkaProvider"
_OFFICIAL = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

_controllers: WeakKeyDictionary[Any, Controller] = WeakKeyDictionary()


def register(spark: Any, *, hooks: tuple[Hook, ...] | None = None) -> Controller:  # noqa: ANN401 - pyspark is optional
    """
    Make ``format("safekafka")`` usable in a session, and return its handle.

    A second call for the same Spark returns the same handle.

    Args:
        spark: a classic ``SparkSession``; its ``spark.jars`` or ``spark.jars.packages``
            name what :func:`~safeconsumer.spark.jars` and
            :func:`~safeconsumer.spark.packages` return.
        hooks: take events; to structlog if None, as with :class:`SafeConsumer`. Only
            those of the first call count.

    Raises:
        SparkSetupError: it is a Spark Connect session, it is older than Spark 3.5 or
            runs on a Java before 17, the shim or the connector is not in it, or the
            connector is of another line of Spark or another Scala.
    """
    gateway = _gateway(spark)
    known = _controllers.get(gateway)
    if known is not None:
        return known
    _check(spark, gateway)
    own = ledger(hooks)
    connect = JvmLogins(gateway).connect
    controller = Controller(partial(open_stream, own, connect=connect), own)
    java_gateway = importlib.import_module("pyspark.java_gateway")
    java_gateway.ensure_callback_server_started(gateway)
    _static(gateway, _SHIM).decideBy(controller.bridge)
    _controllers[gateway] = controller
    return controller


def _gateway(spark: Any) -> Any:  # noqa: ANN401 - py4j is untyped
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        message = (
            "safekafka cannot run over Spark Connect: the server cannot call back into "
            "this client. Use a classic session (SparkSession.builder.master(...), "
            "spark-submit), or place holds by safeconsumer pause on a job that does"
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
    scala = _static(gateway, "scala.util.Properties").versionNumberString()
    platforms.check_connector(jar, version, ".".join(scala.split(".")[:2]))


def _loaded(gateway: Any, name: str) -> Any | None:  # noqa: ANN401 - py4j is untyped
    protocol = importlib.import_module("py4j.protocol")
    loader = gateway.jvm.Thread.currentThread().getContextClassLoader()
    try:
        return loader.loadClass(name)
    except protocol.Py4JJavaError:  # ClassNotFoundException
        return None


def _static(gateway: Any, name: str) -> Any:  # noqa: ANN401 - py4j is untyped
    found = gateway.jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found
