"""Makes client settings with long timeouts."""

from kafka import KafkaConsumer

_WHOLE = "default_api_timeout_ms"


def patient(request_ms, **more):
    """
    Return client settings with a request timeout of ``request_ms`` milliseconds.

    In kafka-python 3.1 the timeout for a whole call must not be shorter than the
    timeout for a request. kafka-python 3.0 has no timeout for a whole call.
    """
    whole = {_WHOLE: request_ms} if _WHOLE in KafkaConsumer.DEFAULT_CONFIG else {}
    return {"request_timeout_ms": request_ms, **whole, **more}
