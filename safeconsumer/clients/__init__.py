"""Provides consumers of other Kafka libraries whose pauses and group holds last."""
