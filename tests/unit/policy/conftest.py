"""A policy's test may take its time: how busy the machine is says nothing about a decision."""

from hypothesis import settings

settings.register_profile("policies", deadline=None)
settings.load_profile("policies")
