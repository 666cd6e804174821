"""Read what a replay kept, and trace files only as what they are recorded to be."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from repro import strictyaml
from repro.adapters.runfolder import DiskRunFolder
from repro.adapters.tracefiles import open_trace
from repro.cli.project import Locked, Written, parse_lock
from repro.digest import digest_bytes
from repro.errors import FileError, TrustError
from repro.host import HostFacts
from repro.lock import FileLock
from repro.manifest import Manifest, PhaseRecord
from repro.noun import Noun
from repro.report.replayed import Replayed
from repro.spec import Spec
from repro.strictjson import MAX_BYTES, loads
from repro.trace import Trace
from repro.verdict import Verdict

__all__ = ["checked_bytes", "checked_trace", "read_replay", "signed_project"]

N = TypeVar("N", bound=Noun)


def checked_bytes(folder: Path, file: FileLock) -> bytes:
    """Read a recorded file of a folder once; links are not followed.

    Raises:
        TrustError: `E_PATH` where it is missing or no plain file, `E_SUBJECT` where it is another one.
    """
    data = DiskRunFolder(folder).read(file.path, limit=MAX_BYTES)
    if digest_bytes(data) != file.digest:
        raise _other_file(folder, file)
    return data


def checked_trace(folder: Path, phases: Iterable[PhaseRecord]) -> Trace:
    """Open the traces of a folder once every file is what is recorded of it.

    Raises:
        TrustError: `E_PATH` where a file is missing or no plain file, `E_SUBJECT` where it is another one.
        TraceError: a rank is missing or stands twice.
    """
    kept = tuple(phases)
    _check(folder, [file for phase in kept for file in phase.trace])
    return open_trace(folder, kept)


def signed_project(folder: Path, manifest: Manifest, root: Path) -> tuple[Written, Locked]:
    """Read spec and lock as they were signed; source and data are those of the project at `root`."""
    data, lock = checked_bytes(folder, manifest.spec), checked_bytes(folder, manifest.lock)
    document = strictyaml.load(data, where=manifest.spec.path)
    spec = strictyaml.validate(document, Spec, where=manifest.spec.path)
    locked = Locked(parse_lock(lock, where=manifest.lock.path), {"repro.lock": lock})
    return Written(root.resolve(), spec, data), locked


def _check(folder: Path, files: Iterable[FileLock]) -> None:
    disk = DiskRunFolder(folder)
    for file in files:
        if disk.digest(file.path) != (file.digest, file.size):
            raise _other_file(folder, file)


def _other_file(folder: Path, file: FileLock) -> TrustError:
    return TrustError(
        "E_SUBJECT",
        "the file is not the one that is recorded",
        where=f"{folder}/{file.path}",
        remedy="obtain the folder again",
    )


def read_replay(path: Path) -> Replayed:
    """Read a folder that `repro replay --keep` wrote, or a verdict alone.

    Raises:
        FileError: `not-a-replay` where it is neither.
        TrustError: a file of it is not what is recorded of it.
    """
    if path.is_file():
        verdict = _parsed(Verdict, loads(path.read_bytes(), where=str(path)), path)
        return Replayed(name=path.stem, verdict=verdict)
    verdict = _parsed(Verdict, _document(path / "verdict.json"), path / "verdict.json")
    place = path / "phases.json"
    tree = _document(place)
    if not isinstance(tree, list):
        raise _no_replay("the phases are no list", place)
    phases = tuple(_parsed(PhaseRecord, phase, place) for phase in tree)
    return Replayed(
        name=path.resolve().name,
        verdict=verdict,
        phases=phases,
        trace=checked_trace(path, phases),
        host=_parsed(HostFacts, _document(path / "host.json"), path / "host.json"),
    )


def _document(path: Path) -> Any:
    try:
        return loads(path.read_bytes(), where=str(path))
    except FileNotFoundError:
        raise _no_replay(f"there is no {path.name}", path) from None


def _parsed(noun: type[N], tree: Any, place: Path) -> N:
    try:
        return noun.parse(tree)
    except ValidationError as error:
        first = error.errors()[0]
        raise _no_replay(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", place) from None


def _no_replay(message: str, place: Path) -> FileError:
    return FileError(
        "not-a-replay",
        message,
        where=str(place),
        remedy="name a folder that `repro replay --keep` wrote, or its verdict.json",
    )
