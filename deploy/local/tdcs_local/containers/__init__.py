"""Root file systems and image archives: of the nodes, of PyTorch, and the base of the project's own images."""
