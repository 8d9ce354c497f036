"""Parameter servers whose transfers travel in the order in which they are needed."""
