"""Controls holds on whole consumer groups through Kafka topics; imported on first use."""
