"""The processes of the reader: those that serve a session in turn, the reserve, and the monitor beside them."""
