"""The block protocol: frames, connections, and the client's side of both agents and readers."""
