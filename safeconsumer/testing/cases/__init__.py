"""Cases that any class with kafka-python's methods can be tried with."""
