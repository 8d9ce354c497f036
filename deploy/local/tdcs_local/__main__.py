"""``python -m tdcs_local``."""

import sys

from tdcs_local.errors import LocalError

try:
    from tdcs_local.cli import main
except LocalError as error:  # a setting of the environment that modules read when they are imported
    sys.exit(f"error: {error}")

main()
