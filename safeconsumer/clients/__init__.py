"""Consumers of other Kafka libraries whose pauses hold, as members of a held group."""
