"""The folders of one tier: blocks, journal, what is kept over a restart, and the room that is left."""
