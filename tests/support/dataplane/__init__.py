"""What serves data on a node, under test: agents and readers as processes or in this one, and a node in miniature."""
