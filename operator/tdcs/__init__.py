"""TDCS: task and data co-located scheduling of deep-learning jobs on Kubernetes."""
