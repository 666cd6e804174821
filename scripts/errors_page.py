"""Write docs/errors.md from the source: every kind of error, its words and its remedy."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAMILIES = {
    "SpecError": "Files written by hand",
    "LockError": "Locking",
    "BuildError": "Images",
    "EngineError": "The container engine",
    "RunError": "Running the pilot",
    "TraceError": "Traces",
    "CompareError": "Comparing",
    "TrustError": "Signatures and trust",
    "HostError": "This machine",
    "NetworkError": "The network",
    "FileError": "Files",
}
HEAD = """# Errors

Every failure on purpose has a *kind*: a name that stays. With `--json` a command prints
`{"error": {"kind": …, "message": …, "where": …, "remedy": …}}` on stdout and exits with 1.
This page is written from the source by `python scripts/errors_page.py`; a test compares the two.
Words in ⟨angle brackets⟩ are filled in.
"""


def words(node: ast.expr | None) -> str:
    """The text of a message with its variable parts named."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"⟨{ast.unparse(part.value)[:30]}⟩"  # type: ignore[attr-defined]
            for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return words(node.left) + words(node.right)
    return "…" if node is not None else ""


def kinds() -> dict[str, dict[str, tuple[str, str]]]:
    """Family title to kind to (message, remedy), from every raise-able call in the package."""
    found: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for path in sorted((ROOT / "repro").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            title, kind = FAMILIES.get(node.func.id), node.args[0]
            if title is None or not isinstance(kind, ast.Constant):
                continue
            remedy = next((keyword.value for keyword in node.keywords if keyword.arg == "remedy"), None)
            message = node.args[1] if len(node.args) > 1 else None
            found[title].setdefault(str(kind.value), (words(message), words(remedy)))
    return found


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    found = kinds()
    for title in FAMILIES.values():
        if title not in found:
            continue
        parts.append(f"\n## {title}\n\n| kind | what it says | what to do |\n|---|---|---|\n")
        for kind, (message, remedy) in sorted(found[title].items()):
            cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in (message, remedy)]
            parts.append(f"| `{kind}` | {cells[0]} | {cells[1]} |\n")
    return "".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "errors.md").write_text(page(), encoding="utf-8")
    sys.stdout.write(f"docs/errors.md: {sum(map(len, kinds().values()))} kinds\n")
