"""Serves the operators' web console, which shows, places and lifts holds."""
