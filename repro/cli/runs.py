"""Read a run folder without verifying it: for showing, and for counting on from it."""

from __future__ import annotations

from pathlib import Path

from repro.errors import FileError
from repro.manifest import Manifest, parse_manifest

__all__ = ["next_sequence", "not_a_run", "read_manifest"]


def read_manifest(run: Path) -> Manifest:
    """Read `manifest.json` of a run folder.

    Raises:
        FileError: `not-a-run` where there is none.
        TrustError: it cannot be parsed.
    """
    path = run / "manifest.json"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise not_a_run(run) from None
    return parse_manifest(data, where=str(path))


def not_a_run(run: Path) -> FileError:
    """Name a folder that is no run folder."""
    return FileError(
        "not-a-run",
        "there is no manifest.json: this is no run folder",
        where=str(run),
        remedy="name a folder that `repro capture` wrote, such as manifests/pilot.cpu",
    )


def next_sequence(run: Path, project: str) -> int:
    """Number for a new run that takes the place of what lies at `run`: one more, or 1.

    Raises:
        FileError: `other-project` where the run there belongs to another project.
    """
    if not (run / "manifest.json").exists():
        return 1
    manifest = read_manifest(run)
    if manifest.project != project:
        raise FileError(
            "other-project",
            f"a run of project {manifest.project} lies here, not of {project}",
            where=str(run),
            remedy="choose another folder with --out",
        )
    return manifest.sequence + 1
