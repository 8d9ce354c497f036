"""Images: of the nodes, of the project, and the base that both are built on."""
