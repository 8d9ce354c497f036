"""The operator as a process: its start, its health, and its views compared with the server."""
