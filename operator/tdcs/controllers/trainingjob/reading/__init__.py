"""How long the reads of jobs wait."""
