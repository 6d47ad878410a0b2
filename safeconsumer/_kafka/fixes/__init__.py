"""Works around defects of kafka-python that are not about pausing."""
