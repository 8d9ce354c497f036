"""`make update`: newer versions of what is pinned, and what their changelogs call breaking."""
