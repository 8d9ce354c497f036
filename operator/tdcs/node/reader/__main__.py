"""`python -m tdcs.node.reader`: the same as `tdcs reader`."""

from tdcs.node.reader.reader_command import command

command()
