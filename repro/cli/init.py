"""`repro init`: a first repro.yaml for a project that has none."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from repro.adapters.files import write_together
from repro.cli import options
from repro.errors import FileError
from repro.propose import propose

__all__ = ["command"]

MAX_BYTES = 1 << 20
IGNORED = {"node_modules", "site-packages", "build", "dist", "manifests", "locks"}


def _sources(root: Path) -> dict[str, str]:
    """Text of Python and requirement files, but for hidden folders and virtual environments."""
    found = {}
    for path in sorted([*root.rglob("*.py"), *root.glob("requirements*")]):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") or part in IGNORED for part in parts)
        inside = any((parent / "pyvenv.cfg").exists() for parent in path.parents if parent != root.parent)
        if not hidden and not inside and path.is_file() and path.stat().st_size <= MAX_BYTES:
            found["/".join(parts)] = path.read_text(encoding="utf-8", errors="replace")
    return found


def _dockerfile(name: str) -> bytes:
    """Read a Dockerfile of ours: packed beside the code, or at the top of a checkout."""
    packed = files("repro").joinpath("data", f"Dockerfile.{name}")
    if packed.is_file():
        return packed.read_bytes()
    return (Path(__file__).parents[2] / f"Dockerfile.{name}").read_bytes()


@click.command("init")
@options.project
@click.option(
    "-a",
    "--accelerator",
    "accelerators",
    type=click.Choice(["cpu", "cuda", "rocm"]),
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="Accelerator to name; may be given more than once.",
)
def command(root: Path, accelerators: tuple[str, ...]) -> None:
    """Write repro.yaml and Dockerfiles for a project that has neither.

    Files that are there already are never touched. What could not be decided is listed.

    \b
    Example:  repro init -a cpu -a cuda
    Exit codes: 0 written, 1 could not do it, 2 usage.
    """
    if (root / "repro.yaml").exists():
        raise FileError(
            "file-exists",
            "there is a repro.yaml already",
            where=str(root / "repro.yaml"),
            remedy="edit it by hand; `repro lock` says what is wrong with it",
        )
    proposal = propose(root.resolve().name, _sources(root), accelerators=accelerators)
    documents: dict[str, bytes | None] = {"repro.yaml": proposal.text.encode()}
    for name in accelerators:
        if not (root / f"Dockerfile.{name}").exists():
            documents[f"Dockerfile.{name}"] = _dockerfile(name)
    write_together(root, documents, last="repro.yaml")
    for path in sorted(documents):
        click.echo(f"wrote {root / path}")
    click.echo("for you to decide:")
    for question in proposal.open_questions:
        click.echo(f"  {question}")
