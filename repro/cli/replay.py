"""`repro replay`: a signed run, run again and judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from repro.adapters.clock import SystemClock
from repro.adapters.files import write_atomic
from repro.attest.verify import Demands
from repro.cli import options
from repro.cli.console import Console, print_json
from repro.cli.judging import OUTCOMES, Judged, judge, say_verdict, signed_replay
from repro.cli.pilot import PHASES, scratch
from repro.cli.project import Locked, Written, choose, parse_lock, read_lock, read_spec
from repro.cli.flow import ready
from repro.cli.signing import open_signer
from repro.cli.verifying import say_verification, verify_folder
from repro.errors import RunError
from repro.manifest import VerifiedManifest
from repro.replay import replay
from repro.report.summary import summary_markdown
from repro import strictyaml
from repro.spec import Spec

__all__ = ["command"]


def _signed_project(run: Path, verified: VerifiedManifest, root: Path) -> tuple[Written, Locked]:
    """Spec and lock as they were signed; source and data from the project's folder."""
    manifest = verified.manifest
    data = (run / manifest.spec.path).read_bytes()
    document = strictyaml.load(data, where=manifest.spec.path)
    spec = strictyaml.validate(document, Spec, where=manifest.spec.path)
    lock_bytes = (run / manifest.lock.path).read_bytes()
    lock = parse_lock(lock_bytes, where=manifest.lock.path)
    return Written(root.resolve(), spec, data), Locked(lock, {"repro.lock": lock_bytes})


def _current_project(root: Path, verified: VerifiedManifest) -> tuple[Written, Locked]:
    """Spec and lock as they stand in the project's folder now."""
    written = read_spec(root)
    name = choose(written.spec, verified.manifest.accelerator)
    return written, read_lock(root, [name])
