import pytest

from sunk_kube.answers import refusal
from sunk_kube.errors import (
    KubeBusyError,
    KubeExistsError,
    KubeGoneError,
    KubeNotFoundError,
    KubeRejectedError,
    KubeUnauthorizedError,
    KubeUnavailableError,
)
from sunk_runtime.errors import ConflictError, PermanentError, SunkError, TransientError

STATUS = b'{"kind":"Status","status":"Failure","message":"because","reason":"%s","code":%d}'


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        pytest.param(400, b"BadRequest", KubeRejectedError, id="400 is refused"),
        pytest.param(401, b"Unauthorized", KubeUnauthorizedError, id="401 may be a token that rotates"),
        pytest.param(403, b"Forbidden", KubeRejectedError, id="403 is refused"),
        pytest.param(404, b"NotFound", KubeNotFoundError, id="404 is absent"),
        pytest.param(409, b"Conflict", ConflictError, id="409 is a stale view"),
        pytest.param(409, b"AlreadyExists", KubeExistsError, id="409 of a create: it exists"),
        pytest.param(410, b"Expired", KubeGoneError, id="410 means: list again"),
        pytest.param(422, b"Invalid", KubeRejectedError, id="422 is refused"),
        pytest.param(429, b"TooManyRequests", KubeBusyError, id="429 is later, and quiet meanwhile"),
        pytest.param(500, b"InternalError", KubeUnavailableError, id="500 is later"),
        pytest.param(503, b"ServiceUnavailable", KubeUnavailableError, id="503 is later"),
        pytest.param(302, b"", KubeUnavailableError, id="a redirect is no API server"),
    ],
)
def test_every_status_says_what_to_do_next(status: int, reason: bytes, expected: type[SunkError]) -> None:
    error = refusal("create pods", status, STATUS % (reason, status), {})

    assert type(error) is expected
    assert str(error) == f"create pods: HTTP {status}: because"


@pytest.mark.parametrize("data", [b"", b"<html>502</html>", b"\xff\xfe", b"[]"])
def test_a_proxys_page_instead_of_an_answer_is_still_an_error_of_its_status(data: bytes) -> None:
    assert isinstance(refusal("list pods", 502, data, {}), TransientError)
    assert isinstance(refusal("list pods", 403, data, {}), PermanentError)


@pytest.mark.parametrize(("value", "expected"), [("7", 7.0), ("", 1.0), ("soon", 1.0), ("-1", 1.0)])
def test_waits_as_long_as_the_server_asks(value: str, expected: float) -> None:
    error = refusal("list pods", 429, b"", {"Retry-After": value})

    assert isinstance(error, TransientError)
    assert error.retry_after_s == expected
