"""`python -m tdcs_train`: the same as `tdcs-train`."""

from tdcs_train.cli.main import main

main(prog_name="tdcs-train")
