"""Every decision, one file a question. Functions of values: no I/O, no clock, no client."""
