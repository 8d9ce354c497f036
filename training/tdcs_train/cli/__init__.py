"""The command `tdcs-train`."""
