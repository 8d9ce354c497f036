"""What holds for all unit tests."""

from hypothesis import settings

# A busy machine says nothing about a rule: no property fails because one example took long.
settings.register_profile("tdcs", deadline=None)
settings.load_profile("tdcs")
