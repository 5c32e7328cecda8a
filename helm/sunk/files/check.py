"""What `helm test` runs: asks each address until it says that it is well, or gives up and says why not."""

import sys
import time
import urllib.error
import urllib.request

DEADLINE_S = 60.0
PAUSE_S = 1.0


def trouble(url: str) -> str | None:
    """Return what is wrong with *url*; None if nothing is."""
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - the chart's own addresses.
            return None
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read(300).decode(errors='replace').strip()}"
    except OSError as error:
        return str(error)


def main(urls: list[str]) -> int:
    """Return how many of *urls* are not well in time."""
    until = time.monotonic() + DEADLINE_S
    bad = 0
    for url in urls:
        while (why := trouble(url)) and time.monotonic() < until:
            time.sleep(PAUSE_S)
        print(f"{url}: {why or 'well'}")
        bad += why is not None
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
