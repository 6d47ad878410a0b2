"""Provides consumers for other Kafka libraries, with lasting pauses and group holds."""
