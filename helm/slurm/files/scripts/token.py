"""Keeps short-lived tokens of Slurm in files: the one process of its Pod that sees the key.

Arguments: the key's file, the token's file, the user, the tokens' lifetime in seconds; then, where jobs are
submitted as other users, the file of their tokens and the number of each.

No PyJWT: this file runs in Slurm's image, which has Python's own library only.

Source: Slurm's jwt.html: HS256 over ``exp``, ``iat`` and ``sun``, the user's name. Slurm takes his number too
(24.11 and 26.05, measured).
"""

import base64
import hashlib
import hmac
import json
import pathlib
import signal
import sys
import time

LOOK_S = 10.0


def base64url(content: bytes) -> bytes:
    """Return *content* as a token spells it."""
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def token_of(key: bytes, user: str, now: int, lifetime_s: int) -> bytes:
    """Return a token for *user*, valid from *now*."""
    head, body = (
        base64url(json.dumps(part, separators=(",", ":")).encode())
        for part in ({"alg": "HS256", "typ": "JWT"}, {"exp": now + lifetime_s, "iat": now, "sun": user})
    )
    return b".".join((head, body, base64url(hmac.new(key, head + b"." + body, hashlib.sha256).digest())))


def write(file: str, content: bytes) -> None:
    """Have *file* hold *content*, whole or not at all."""
    new = pathlib.Path(f"{file}.new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(file)


def end(_signum: int, _frame: object) -> None:
    """End well."""
    sys.exit(0)


def main() -> None:
    """Write the tokens now, when half of their life is over, and when the key has changed."""
    key_file, token_file, user, lifetime, *users = sys.argv[1:]
    signal.signal(signal.SIGTERM, end)
    written, since = b"", 0.0
    while True:
        key = pathlib.Path(key_file).read_bytes()
        if key != written or time.monotonic() - since >= int(lifetime) / 2:
            now = int(time.time())
            if users:
                tokens = {number: token_of(key, number, now, int(lifetime)).decode() for number in users[1:]}
                write(users[0], json.dumps(tokens).encode())
            write(token_file, token_of(key, user, now, int(lifetime)))  # Last: it says that all are there.
            written, since = key, time.monotonic()
        time.sleep(min(LOOK_S, int(lifetime) / 2))


if __name__ == "__main__":
    main()
