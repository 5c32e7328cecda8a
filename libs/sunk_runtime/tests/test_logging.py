import json
import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from sunk_events.base import Cause
from sunk_runtime.logging import JsonFormatter, configure
from sunk_runtime.tracing import because


def formatted(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter(service="syncer").format(record)
    assert "\n" not in line
    return json.loads(line)


def record(**extra: object) -> logging.LogRecord:
    return logging.getLogger("test").makeRecord(
        "test", logging.WARNING, "file.py", 1, "event deferred", (), None, extra=extra
    )


def test_a_line_holds_what_was_logged_and_every_extra_field() -> None:
    line = formatted(record(node="n1", tries=3))

    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "test",
        "message": "event deferred",
        "service": "syncer",
        "node": "n1",
        "tries": 3,
    }


def test_a_line_names_what_led_to_what_is_done() -> None:
    with because(Cause("SUNK_lab_kube_pod:n1:7")):
        assert formatted(record())["cause"] == "SUNK_lab_kube_pod:n1:7"
    assert "cause" not in formatted(record())


def test_what_json_has_no_word_for_is_text() -> None:
    assert formatted(record(path=Path("/a"), text="line\nbreak"))["path"] == "/a"


def test_a_traceback_stays_on_the_line() -> None:
    error = KeyError("bug")
    logged = logging.getLogger("test").makeRecord(
        "test", logging.ERROR, "file.py", 1, "failed", (), (KeyError, error, None)
    )

    assert "KeyError: 'bug'" in formatted(logged)["exception"]


@pytest.fixture
def restored() -> Generator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored")
def test_every_logger_writes_json_on_standard_error_from_its_level_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("syncer", "warning")
    logging.getLogger("a.b").info("unheard")
    logging.getLogger("a.b").warning("heard", extra={"node": "n1"})

    out, error = capsys.readouterr()
    (line,) = error.splitlines()
    assert out == ""
    assert (json.loads(line)["service"], json.loads(line)["node"]) == ("syncer", "n1")
