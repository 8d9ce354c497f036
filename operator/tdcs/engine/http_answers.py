"""Answers over HTTP between the processes of TDCS. Whoever gives one may have been taken over: it leads to no other
place, where the asking process would show its certificate, and takes no more memory than it may."""

import aiohttp


def open_session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """A session that unpacks no answer: no process of TDCS packs one, and a small packed one can become a large one."""
    return aiohttp.ClientSession(connector=connector, auto_decompress=False)


async def read(response: aiohttp.ClientResponse, *, most: int) -> bytes:
    """The content of an answer to a request that follows no redirection.

    Args:
        response: what answered.
        most: bytes that it may have.

    Raises:
        aiohttp.ClientPayloadError: it has more, or names another place to ask.
    """
    refuse_redirection(response)
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > most:
            raise aiohttp.ClientPayloadError(f"its answer has more than {most} bytes")
    return bytes(content)


def refuse_redirection(response: aiohttp.ClientResponse) -> None:
    """Raise aiohttp.ClientPayloadError for an answer that names another place to ask."""
    if 300 <= response.status < 400:
        raise aiohttp.ClientPayloadError(f"it answered {response.status}, and no other place is asked for it")
