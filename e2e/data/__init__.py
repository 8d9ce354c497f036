"""What pods read, where its bytes are, and what survives what."""
