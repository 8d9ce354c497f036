"""``python -m tdcs_local``."""

from tdcs_local.cli import main

main()
