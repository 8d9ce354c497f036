"""`python -m tdcs_scheduler`, the same as `tdcs extender`."""

from tdcs_scheduler.main import command

command()
