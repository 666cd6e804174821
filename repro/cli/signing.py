"""Open a private key from what a command was given; passphrases never stand in an argument."""

from __future__ import annotations

import os
from pathlib import Path

import click

from repro.adapters.keys import load_signer
from repro.ports import Signer

__all__ = ["open_signer"]
