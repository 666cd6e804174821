"""Resolve and fetch Python packages with a pip and a pip-tools of our own."""

from __future__ import annotations

from repro.adapters.pip.resolve import PipResolver

__all__ = ["PipResolver"]
