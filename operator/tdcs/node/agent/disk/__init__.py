"""The agent's part of a tier's folder, and the notes that outlive it."""
