"""What every generator does with what it made: writes it, or says what is stale."""

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


def stale(wanted: dict[Path, str], root: Path, folder: Path | None = None) -> list[Path]:
    """Return what is missing, differs, or is there in *folder* for a type that no longer exists."""
    differing = [
        path
        for path, text in wanted.items()
        if not (root / path).exists() or (root / path).read_text() != text
    ]
    there = (
        [path.relative_to(root) for path in (root / folder).iterdir()]
        if folder and (root / folder).is_dir()
        else []
    )
    return sorted([*differing, *(path for path in there if path not in wanted)])


def settle(wanted: dict[Path, str], arguments: list[str], folder: Path | None = None) -> int:
    """Write *wanted*, or with ``--check`` only name what is stale; return the exit status.

    What else *folder* holds, whose files are all generated, is removed.
    """
    changed = stale(wanted, ROOT, folder)
    if "--check" in arguments:
        for path in changed:
            print(f"stale: {path}; run `./task gen`", file=sys.stderr)
        return 1 if changed else 0
    for path in changed:
        target = ROOT / path
        if path not in wanted:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(wanted[path])
        print(f"wrote {path}", file=sys.stderr)
    return 0
