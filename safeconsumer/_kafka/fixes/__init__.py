"""Works around defects of kafka-python that have nothing to do with pausing."""
