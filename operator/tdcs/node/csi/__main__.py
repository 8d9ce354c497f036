"""`python -m tdcs.node.csi`, the same as `tdcs csi`."""

from tdcs.node.csi.csi_command import command

command()
