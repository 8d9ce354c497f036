"""The pages of `docs/reference` that are made from the code, which no process of a cluster needs."""
