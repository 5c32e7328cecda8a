"""A call of the hook gateway as scripts make it: one connection, one question, with an end."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

CONNECT_TIMEOUT_S: Final = 5.0


async def call(method: str, url: str, token: str, body: str, seconds: float) -> tuple[int, str]:
    """Return the HTTP status and the body; status 0: no answer, or half of one."""
    try:
        async with asyncio.timeout(seconds):
            return await _call(method, url, token, body)
    except (OSError, ValueError, asyncio.IncompleteReadError):
        return 0, ""


async def _call(method: str, url: str, token: str, body: str) -> tuple[int, str]:
    parts = urlsplit(url)
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(parts.hostname or "", parts.port or 80)
    try:
        content = body.encode()
        lines = [
            f"{method} {parts.path} HTTP/1.0",
            f"Host: {parts.netloc}",
            f"Authorization: Bearer {token}",
            "Connection: close",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
        ]
        writer.write("\r\n".join((*lines, "", "")).encode() + content)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head.split(" ", 2)[1])
        length = next((line.split(":")[1] for line in head.split("\r\n") if "content-length:" in line), None)
        answer = await (reader.read() if length is None else reader.readexactly(int(length)))
        return status, answer.decode("utf-8", "replace")
    finally:
        writer.close()
