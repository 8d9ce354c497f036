"""The cluster itself: kind, kubectl, its kubeconfig, and the chart that is installed in it."""
