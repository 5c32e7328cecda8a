"""What is asked is what httpx would ask, made with less."""

import httpx
import pytest

from sunk_slurm.asked import Asked

HEADERS = {"Accept": "application/json", "Content-Type": "application/json", "Authorization": "Bearer t"}


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("content", [None, b'{"a":1}'], ids=["no body", "body"])
@pytest.mark.parametrize("server", ["http://slurm", "http://slurm:6820", "http://[::1]:6820/behind/"])
def test_a_request_is_the_one_that_httpx_makes(method: str, content: bytes | None, server: str) -> None:
    target = "/slurm/v0.0.44/node/a%20b?flags=ALL&flags=DETAIL"
    whole = httpx.Request(method, server.rstrip("/") + target, headers=HEADERS, content=content)

    asked = Asked(method, httpx.URL(server), target, bearer="t", content=content or b"")

    assert (asked.method, asked.url, asked.content) == (whole.method, whole.url, whole.content)
    assert asked.extensions["target"] == whole.url.raw_path
    assert sorted(asked.headers.raw) == sorted(whole.headers.raw)


def test_another_token_is_sent_from_the_next_request_on() -> None:
    server = httpx.URL("http://slurm")
    sent = [Asked("GET", server, "/", bearer=token, content=b"").headers["Authorization"] for token in "aab"]

    assert sent == ["Bearer a", "Bearer a", "Bearer b"]
