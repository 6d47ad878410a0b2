"""Turns off Hypothesis's time limits: a busy machine must not fail a decoder's test."""

from hypothesis import HealthCheck, settings

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
