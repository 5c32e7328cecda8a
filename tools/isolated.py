"""Starts each service in an environment of its own, which holds only what that service declares.

An import that works in the common environment, but that no ``pyproject.toml`` names, fails here.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def check(member: Path) -> str | None:
    """Import *member*'s main module by itself; return what went wrong."""
    name = tomllib.loads((member / "pyproject.toml").read_text())["project"]["name"]
    module = name.replace("-", "_")
    command = ["uv", "run", "--quiet", "--isolated", "--exact", "--no-dev", "--package", name]
    done = subprocess.run(
        [*command, "python", "-c", f"import {module}.main"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{name}: {done.stderr.strip().splitlines()[-1]}" if done.returncode else None


def main() -> int:
    """Check every service and return how many failed."""
    wrong = [problem for member in sorted(ROOT.glob("services/*")) if (problem := check(member))]
    for problem in wrong:
        print(problem, file=sys.stderr)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
