"""Implements ``safeconsumer demo``, which compares SafeConsumer with KafkaConsumer."""
