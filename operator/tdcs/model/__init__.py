"""Values that cross rooms: what agents report, manifests, slots, and objects of Kubernetes as JSON."""
