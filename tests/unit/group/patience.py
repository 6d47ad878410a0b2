"""Hypothesis without a stop-watch: a loaded machine is no fault of a decoder."""

from hypothesis import HealthCheck, settings

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
