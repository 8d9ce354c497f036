"""`python -m tdcs.reader`: the same as `tdcs reader`."""

from tdcs.reader.main import command

command()
