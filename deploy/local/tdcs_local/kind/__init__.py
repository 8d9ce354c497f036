"""The cluster itself: kind, kubectl, its kubeconfig, the images that it runs, and the chart that is installed in it."""
