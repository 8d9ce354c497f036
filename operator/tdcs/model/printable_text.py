"""Names of files as people read them."""


def printable(text: str) -> str:
    """A file's name as a status can carry it: bytes that are no text, and control characters, as ``\\x07``."""
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in readable)
