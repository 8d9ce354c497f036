"""Answering a session: requests taken and shared out, reads, what is fetched ahead, and what is kept of it."""
