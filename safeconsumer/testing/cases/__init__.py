"""Cases for any class with kafka-python's methods."""
