"""Plan → image: built by an engine, written by us, the same bytes from any builder."""

from __future__ import annotations

from repro.build.build import build_image, held_record
from repro.build.check import check_image
from repro.build.plan import EPOCH, VENV, WORKSPACE, make_plan

__all__ = ["EPOCH", "VENV", "WORKSPACE", "build_image", "check_image", "held_record", "make_plan"]
