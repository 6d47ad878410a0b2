"""Holds a whole consumer group through topics in Kafka; imported only when it is used."""
