"""The verb `lock`: `repro.spec.Spec` becomes `repro.lock.Lock`.

The folder is called `resolve` because `repro/lock.py` is the noun.
"""

from __future__ import annotations

from repro.resolve.check import Freshness, check
from repro.resolve.lock import LockResult, lock

__all__ = ["Freshness", "LockResult", "check", "lock"]
