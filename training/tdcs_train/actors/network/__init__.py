"""Registers between machines: bytes are pulled by the machine that has room for them, urgent ones first."""
