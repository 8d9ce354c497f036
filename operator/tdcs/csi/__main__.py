"""`python -m tdcs.csi`, the same as `tdcs csi`."""

from tdcs.csi.main import command

command()
