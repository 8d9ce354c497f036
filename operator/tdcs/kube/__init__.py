"""Access to the Kubernetes API: resources, server-side apply, informers, events."""
