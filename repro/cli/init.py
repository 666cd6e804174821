"""`repro init`: a first repro.yaml for a project, or what is missing in the one it has."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from repro import strictyaml
from repro.adapters.files import write_together
from repro.adapters.specfile import add_missing
from repro.cli import options
from repro.cli.project import spec_bytes
from repro.propose import Proposal, Question, propose

__all__ = ["command"]

ACCELERATORS = ["cpu", "cuda", "rocm"]
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


def _keys(tree: Any, path: str = "") -> set[str]:
    """Dotted keys of a document, models and data sets by what they name."""
    found = {path}
    if isinstance(tree, dict):
        for key, value in tree.items():
            found |= _keys(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list):
        for item in tree:
            values = item.values() if isinstance(item, dict) else [item]
            found |= {f"{path}.{value}" for value in values}
    return found


def _extend(data: bytes, path: Path, proposal: Proposal) -> tuple[bytes, list[Question]]:
    """Say what a `repro.yaml` lacks; return its new text, and what that leaves to decide."""
    extended = add_missing(data, proposal.required, where=str(path))
    there = _keys(strictyaml.load(extended.data, where=str(path)).value)
    open_questions = [
        question
        for question in proposal.open_questions
        if any(key.startswith(question.key) for key in extended.added)
        or (question.key.startswith(("models.", "datasets.")) and question.key not in there)
    ]
    click.echo(f"left in {path}: {', '.join(extended.left) or 'nothing'}, and whatever else it says")
    if extended.added:
        click.echo(f"added to {path}: {', '.join(extended.added)}")
    return extended.data, open_questions


def _named_already(data: bytes, where: str) -> tuple[str, ...]:
    named = strictyaml.load(data, where=where).get(("accelerators",))
    return tuple(name for name in named if name in ACCELERATORS) if isinstance(named, dict) else ()


def _dockerfiles(root: Path, proposal: Proposal, spec: bytes) -> dict[str, bytes | None]:
    """Dockerfiles of ours that the spec names and that are not there."""
    document = strictyaml.load(spec, where="repro.yaml")
    missing: dict[str, bytes | None] = {}
    for name, wanted in proposal.required["accelerators"].items():
        place = wanted["dockerfile"]
        if document.get(("accelerators", name, "dockerfile")) != place:
            continue
        if (root / place).exists():
            click.echo(f"left {root / place}")
        else:
            missing[place] = _dockerfile(name)
    return missing


@click.command("init")
@options.project
@click.option(
    "-a",
    "--accelerator",
    "asked",
    type=click.Choice(ACCELERATORS),
    multiple=True,
    help="Accelerator to name; may be given more than once.  [default: those named already, else cpu]",
)
def command(root: Path, asked: tuple[str, ...]) -> None:
    """Write repro.yaml and Dockerfiles for a project, or add what is missing.

    What is there already stays as it is, to the byte: values, comments and
    layout. In a repro.yaml that is there, only keys that it cannot do without
    and accelerators asked for are added. What could not be decided is listed.

    \b
    Example:  repro init -a cpu -a cuda
    Exit codes: 0 written, or nothing is missing, 1 could not do it, 2 usage.
    """
    spec = root / "repro.yaml"
    there = spec_bytes(root) if spec.exists() else None
    accelerators = asked or (_named_already(there, str(spec)) if there else ()) or ("cpu",)
    proposal = propose(root.resolve().name, _sources(root), accelerators=accelerators)
    text, questions = proposal.text.encode(), list(proposal.open_questions)
    if there is not None:
        text, questions = _extend(there, spec, proposal)
    documents = _dockerfiles(root, proposal, text)
    if text != there:
        documents["repro.yaml"] = text
    write_together(root, documents, last="repro.yaml")
    for path in sorted(documents):
        click.echo(f"wrote {root / path}")
    if questions:
        click.echo("for you to decide:")
    for question in questions:
        click.echo(f"  {question.text}")
