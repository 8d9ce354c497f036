"""What is going on in the cluster, live: for `tdcs top` in a terminal, and `tdcs ui` in a browser."""
