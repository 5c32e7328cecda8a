"""One JSON object a line on standard error: time, level, logger, message, cause, and what ``extra`` names."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from sunk_runtime.tracing import cause_now

_BUILT_IN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object."""

    def __init__(self, **always: str) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        cause = cause_now().id
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._always,
            **({"cause": cause} if cause else {}),
            **{name: value for name, value in vars(record).items() if name not in _BUILT_IN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(service: str, level: str = "INFO") -> None:
    """Make every logger of the process write JSON lines that name *service*."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service=service))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "uvicorn", "nats"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
