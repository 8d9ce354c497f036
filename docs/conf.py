"""Sphinx configuration; `make docs` builds the pages, with every warning an error."""

import os

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

# docs/build_site.py builds a folder for each version and names them here: that of these pages, then all of them.
shown_version, *versions = os.environ.get("TDCS_DOCS_VERSIONS", "main").split()
html_context = {"shown_version": shown_version, "versions": versions}
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "versions.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
