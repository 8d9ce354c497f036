"""Sphinx configuration; `make docs` builds the pages, with every warning an error."""

import click

from tdcs.cli.main import main

# sphinx-click writes about the subcommands that a group has, and those of tdcs are imported when they are used.
for name in main.list_commands(click.Context(main)):
    main.add_command(main.get_command(click.Context(main), name), name)

project = "TDCS"
author = "The TDCS authors"
copyright = "The TDCS authors, Apache License 2.0"
extensions = ["myst_parser", "sphinx_click"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "TDCS"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Pages link to files of the repository, which are not pages; a person reads both in the same checkout.
suppress_warnings = ["myst.xref_missing"]
