"""Works around defects of kafka-python that are not related to pausing."""
