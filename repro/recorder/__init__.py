"""Records a training program from inside, without a change to it.

The folder is put into a container alone and found through `PYTHONPATH`: it needs
only the standard library and torch, and imports nothing of the rest of repro.
This module itself needs no torch, so that the host can list and digest the files.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

__all__ = ["digest", "files", "folder", "observe"]

PRIVATE_NAME = "_repro_recorder"
"""Name the folder is imported by in a recorded process, so that no module of the program is hidden."""


def folder() -> Path:
    """Return the folder to mount; `inject` in it goes first on `PYTHONPATH`."""
    return Path(__file__).resolve().parent


def files() -> list[Path]:
    """Return every source file, sorted by its path in the folder."""
    here = folder()
    return sorted(here.rglob("*.py"), key=lambda path: path.relative_to(here).as_posix())


def digest() -> str:
    """Return the identity of these files: sha256 over the lines `<sha256 of file>  <path>`."""
    here, state = folder(), hashlib.sha256()
    for path in files():
        line = f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(here).as_posix()}\n"
        state.update(line.encode("utf-8"))
    return "sha256:" + state.hexdigest()


def observe(name: str, tensor: Any) -> None:
    """Record the fingerprint of a tensor under a name; does nothing in a process that is not recorded."""
    hooks = sys.modules.get(PRIVATE_NAME + ".hooks")
    if hooks is not None:
        hooks.observe(name, tensor)
