"""Training over slow links: plans, pipelines, ordered transfers and loaders on one actor runtime."""

__version__ = "0.1.0"
