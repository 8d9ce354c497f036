"""Names of files, and what processes say, as people read them."""

import re


def printable(text: str) -> str:
    """A file's name as a status can carry it: bytes that are no text, and control characters, as ``\\x07``."""
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in readable
    )


_RPC = re.compile(
    r"rpc error: code = \w+ desc = "
    r"|\b(?:io\.grpc\.)?Status(?:Runtime)?Exception: ?(?:[A-Z_]+\b:? ?)?"
    r"|\bStatusCode\.[A-Z_]+:? ?"
    r"|\b(?:UNAVAILABLE|DEADLINE_EXCEEDED|UNIMPLEMENTED|RESOURCE_EXHAUSTED|FAILED_PRECONDITION|UNAUTHENTICATED"
    r"|INVALID_ARGUMENT|PERMISSION_DENIED|ALREADY_EXISTS|NOT_FOUND|OUT_OF_RANGE|DATA_LOSS)\b:? ?"
)


def without_rpc_words(text: str) -> str:
    """What a process said, without the names that gRPC has for how calls end, which say nothing to users."""
    return _RPC.sub("", text)
