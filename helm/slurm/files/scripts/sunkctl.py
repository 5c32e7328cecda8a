#!/usr/bin/python3 -I
"""sunkctl on a login node: says why a Slurm job of yours waits, or what it waits for in its prolog.

Slurm itself says who you are: `scontrol token` gives a token for a minute, or SLURM_JWT has one already.

Settings, in /etc/sunk/scripts/hooks.env or the file that SUNK_HOOKS_ENV names: SUNK_HOOKS_URL, and with https
SUNK_HOOKS_CA_FILE. Exit statuses are those of sunkctl: 1 failed, 2 wrong usage, 3 you may not, 4 no such job
of yours, 5 no answer now.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any, NoReturn

SETTINGS = "/etc/sunk/scripts/hooks.env"
WITHIN_S = 20.0  # For all calls together.
PAUSE_S = 1.0
STATUS = {400: 2, 401: 3, 403: 3, 404: 4}
ANSWER_MAX = 1 << 20


def fail(status: int, why: str) -> NoReturn:
    """End with one sentence."""
    print(f"sunkctl: {printable(why)}", file=sys.stderr)
    sys.exit(status)


def printable(text: str) -> str:
    """Return *text* as one line that a terminal does not obey."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def settings() -> dict[str, str]:
    """Return the settings of the hooks."""
    file = os.environ.get("SUNK_HOOKS_ENV", SETTINGS)  # noqa: TID251 - a program of its own
    try:
        lines = pathlib.Path(file).read_text().splitlines()
    except OSError as error:
        fail(1, f"{file} cannot be read: {error.strerror}")
    return {name: value for name, is_set, value in (line.partition("=") for line in lines) if is_set}


def token() -> str:
    """Return a token of Slurm for the user who calls."""
    if given := os.environ.get("SLURM_JWT", "").strip():  # noqa: TID251 - a program of its own
        return given
    try:
        said = subprocess.run(
            ["scontrol", "token", "lifespan=60"],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        fail(5, f"scontrol token: {error}")
    name, _, made = said.stdout.strip().partition("=")
    if said.returncode or name != "SLURM_JWT" or not made:
        fail(5, f"scontrol token: {said.stderr.strip() or said.stdout.strip() or 'it printed no token'}")
    return made


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no answer to another address: the token would go with it."""

    def redirect_request(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - none is used
        """Return None: the answer is an error."""


def gateway() -> tuple[str, urllib.request.OpenerDirector]:
    """Return where the hook gateway is, and what calls it past any proxy and checks its certificate."""
    known = settings()
    if not (url := known.get("SUNK_HOOKS_URL", "")):
        fail(1, "SUNK_HOOKS_URL is not set")
    ca_file = known.get("SUNK_HOOKS_CA_FILE")
    if (without_tls := known.get("SUNK_HOOKS_URL_WITHOUT_TLS")) and not os.access(ca_file or "", os.R_OK):
        url, ca_file = without_tls, None  # This Pod was made before the gateway had a certificate.
    try:
        trust = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        fail(1, f"SUNK_HOOKS_CA_FILE={ca_file}: {error}")
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT  # As strict as curl in prologs.
    https = urllib.request.HTTPSHandler(context=trust)
    return url, urllib.request.build_opener(urllib.request.ProxyHandler({}), https, NoRedirects())


def ask(job: int) -> list[dict[str, Any]]:
    """Return why *job* is as it is; ask again while nothing was decided."""
    url, opener = gateway()
    mine = token()
    if not (mine.isascii() and mine.isprintable()):
        fail(3, "SLURM_JWT is not a token")
    headers = {"Authorization": f"Bearer {mine}"}
    request = urllib.request.Request(f"{url}/v1/jobs/{job}/explanation", headers=headers)  # noqa: S310 - the hook gateway's.
    until, why = time.monotonic() + WITHIN_S, "it does not answer"
    while True:
        try:
            with opener.open(request, timeout=WITHIN_S / 2) as answer:
                return findings_of(answer.read(ANSWER_MAX))
        except urllib.error.HTTPError as error:
            said = said_by(error)
            why = said or f"HTTP {error.code}"
            if said is None and error.code == 404:  # noqa: PLR2004 - a gateway of before
                fail(5, "the hook gateway has an earlier version, which does not answer users")
            if error.code not in {429, 503}:
                fail(STATUS.get(error.code, 1), why)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                fail(1, f"SUNK_HOOKS_CA_FILE has no CA of the hook gateway: {reason}")
            why = f"no answer: {reason}"
        if time.monotonic() + PAUSE_S >= until:
            fail(5, f"the hook gateway: {why}")
        time.sleep(PAUSE_S)


def findings_of(answer: bytes) -> list[dict[str, Any]]:
    """Return the findings of an answer. Raises ValueError."""
    try:
        return [dict(one) for one in json.loads(answer)["findings"]]
    except (KeyError, TypeError) as error:
        raise ValueError("it gave an unexpected answer") from error


def said_by(error: urllib.error.HTTPError) -> str | None:
    """Return the sentence of an answer that is no success; None: it has none."""
    try:
        return str(json.loads(error.read(ANSWER_MAX))["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def main() -> None:
    """Print why a job is as it is."""
    parser = argparse.ArgumentParser(prog="sunkctl", description="Explain why your Slurm job waits.")
    commands = parser.add_subparsers(required=True, metavar="explain")
    explain = commands.add_parser("explain", help="explain why a job waits, and what would change it")
    explain.add_argument("what", choices=["job"])
    explain.add_argument("number", help="as squeue prints it; of an array the number of the whole array")
    explain.add_argument("-o", "--output", choices=["table", "json"], default="table")
    given = parser.parse_args()
    if re.fullmatch(r"[0-9]+_.*", given.number):
        parser.error(
            "this is a task of an array: give the array's number, or the task's own number (squeue -O JobID)"
        )
    if not re.fullmatch(r"0*[1-9][0-9]{0,9}", given.number):
        parser.error("NUMBER is not the number of a job")
    findings = ask(int(given.number))
    if given.output == "json":
        print(json.dumps(findings, indent=2))
        return
    print(f"job {given.number}" + ("" if findings else ": nothing to report"))
    for one in findings:
        since = f", since {str(one['since'])[:19].replace('T', ' ')} UTC" if one.get("since") else ""
        print(printable(f"  {one.get('what')}{since}"))
        for name, key in (("because", "because"), ("what would change it", "would_change")):
            if one.get(key):
                print(printable(f"    {name}: {one[key]}"))


if __name__ == "__main__":
    main()
