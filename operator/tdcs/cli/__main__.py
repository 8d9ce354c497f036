"""`python -m tdcs.cli`: the command tdcs."""

from tdcs.cli.main import main

if __name__ == "__main__":
    main(prog_name="tdcs")
