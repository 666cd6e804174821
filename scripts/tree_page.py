"""Write docs/tree.md from the source: every file and the first line of what it says of itself."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = """# The tree

Every file of `repro/` in its own words, written from the source by `python scripts/tree_page.py`.
How the rooms belong together is in [house.md](house.md).
"""


def purpose(path: Path) -> str:
    """First line of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0] if text else ""


def page() -> str:
    """The whole page: a table for each folder, the top first."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted((ROOT / "repro").rglob("*.py")):
        folders.setdefault(path.parent, []).append(path)
    parts = [HEAD]
    for folder, paths in sorted(folders.items()):
        parts.append(f"\n## `{folder.relative_to(ROOT).as_posix()}/`\n\n| file | what it is |\n|---|---|\n")
        rows = ((path.name, purpose(path).replace("|", r"\|")) for path in paths)
        parts += [f"| `{name}` | {text} |\n" for name, text in rows if text]
    return "".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "tree.md").write_text(page(), encoding="utf-8")
    sys.stdout.write("docs/tree.md\n")
