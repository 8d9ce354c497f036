"""The command `tdcs-train` as a worker of a test."""

from tdcs_train.cli.main import main

if __name__ == "__main__":
    main(prog_name="tdcs-train")
