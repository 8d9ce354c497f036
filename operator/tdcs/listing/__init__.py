"""Lists a mount in a process of its own, and keeps, opens, fetches and serves the manifests that come of it."""
