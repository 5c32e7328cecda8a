"""HTTP as the lab speaks it: errors are sentences, answers are JSON objects."""

from typing import Any

import httpx
import msgspec

from sunk_lab.errors import LabError
from sunk_lab.stack.raw import Object


class Http(httpx.Client):
    """A client whose failures are `LabError`."""

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx' own options
        """Send one request; any status is an answer.

        Raises:
            LabError: there was no answer; names the request.
        """
        try:
            return self.request(method, path, **options)
        except httpx.HTTPError as error:
            raise LabError(f"{method} {self.base_url}{path}: {error or type(error).__name__}") from error


def content(answer: httpx.Response) -> Object:
    """Return the JSON object of an answer.

    Raises:
        LabError: the answer is an error; quotes what the server said.
    """
    if answer.is_error:
        raise LabError(
            f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text[:600]}"
        )
    return dict(msgspec.json.decode(answer.content))
