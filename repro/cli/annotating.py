"""Say findings to a CI system as annotations: on stderr, beside what a person reads there."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from repro import strictyaml
from repro.cli.failure import named
from repro.errors import LockError, ReproError, SpecError
from repro.report.annotations import NOWHERE, Annotation, Place, error_annotations, github_line
from repro.resolve.reason import Reason

__all__ = ["Annotate", "annotated", "place_of", "place_of_run", "stale_annotations"]

Annotate = Callable[[Iterable[Annotation]], None]
"""Says annotations where they are wanted, else does nothing."""

F = TypeVar("F", bound=Callable[..., Any])

_PLACE = re.compile(r"(?P<file>.+?)(?::(?P<line>[1-9][0-9]*))?(?::(?P<column>[1-9][0-9]*))?")


def _wanted(asked: str) -> bool:
    return asked == "github" or (asked == "auto" and os.environ.get("GITHUB_ACTIONS") == "true")


def _shown(path: Path) -> str:
    """A path as the checked out repository has it: below its top, which is where jobs start."""
    top = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    here = path.resolve()
    return (here.relative_to(top) if here.is_relative_to(top) else here).as_posix()


def place_of(path: Path, line: int | None = None) -> Place:
    """The place of a file, or nowhere where there is none."""
    return Place(file=_shown(path), line=line) if path.is_file() else NOWHERE


def place_of_run(run: Path) -> Place:
    """The place of a run folder: its manifest."""
    return place_of(run / "manifest.json")


def _line_of_key(root: Path, key: str) -> int | None:
    """The line of `repro.yaml` that a dotted key stands in, or as much of it as is there."""
    spec = root / "repro.yaml"
    if not spec.is_file():
        return None
    try:
        document = strictyaml.load(spec.read_bytes(), where="repro.yaml")
    except (OSError, SpecError):
        return None
    path = document.path_of(key)
    return document.place(path)[0] if path else None


def stale_annotations(reasons: Iterable[str], root: Path) -> Iterator[Annotation]:
    """Each reason why a lock no longer holds, at the key or file that changed; what is gone, at the lock."""
    for reason in reasons:
        place = place_of(root / "repro.lock")
        if isinstance(reason, Reason) and (root / reason.file).is_file():
            line = _line_of_key(root, reason.key) if reason.key else None
            place = place_of(root / reason.file, line)
        yield Annotation(
            title="repro lock: stale",
            message=f"{reason}\nWhat to do: lock again with `repro lock`",
            place=place,
        )


def _place_of_error(error: ReproError, root: Path) -> Place:
    """Read an error's place: `FILE:LINE:COLUMN`, `FILE:LINE`, `FILE`, or a key of `repro.yaml`."""
    found = _PLACE.fullmatch(error.where or "")
    if found is None:
        return NOWHERE
    line, column = (int(found[name]) if found[name] else None for name in ("line", "column"))
    for path in (Path(found["file"]), root / found["file"]):
        if path.is_file():
            return Place(file=_shown(path), line=line, column=column)
    spec = root / "repro.yaml"
    line = _line_of_key(root, found["file"])
    return place_of(spec, line) if line else NOWHERE


def _of_error(error: ReproError, root: Path) -> Iterator[Annotation]:
    if isinstance(error, LockError) and error.reasons:
        yield from stale_annotations(error.reasons, root)
    else:
        yield from error_annotations(error, _place_of_error(error, root))


def annotated(function: F) -> F:
    """Whether findings are annotated too.

    The command gets `annotate`, an `Annotate`. An error that ends it is annotated here.
    """

    @functools.wraps(function)
    def told(*arguments: Any, annotations: str, **others: Any) -> Any:
        def annotate(found: Iterable[Annotation]) -> None:
            if _wanted(annotations):
                for one in found:
                    click.echo(github_line(one), err=True)

        try:
            return function(*arguments, annotate=annotate, **others)
        except (ReproError, OSError) as error:
            annotate(_of_error(named(error), others.get("root") or Path()))
            raise

    decorate = click.option(
        "--annotations",
        type=click.Choice(["auto", "github", "none"]),
        default="auto",
        show_default=True,
        help="github: say each finding as an annotation of GitHub Actions too, on stderr. "
        "auto: where GITHUB_ACTIONS is true.",
    )
    return cast(F, decorate(told))
