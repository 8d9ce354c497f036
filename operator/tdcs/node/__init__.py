"""What runs on nodes: the agent, the reader, the node plugin, and the protocol between them."""
