"""How long reads of pods waited: the table on a node, the report, and the port that takes it."""
