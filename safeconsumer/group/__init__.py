"""Holds a whole consumer group through Kafka topics; the package is imported on first use."""
