"""The verb `lock`: `repro.spec.Spec` becomes `repro.lock.Lock`.

The folder is called `resolve` because `repro/lock.py` is the noun.
"""

from __future__ import annotations

from repro.resolve.freshness import Freshness, check
from repro.resolve.holding import hold
from repro.resolve.locking import LockResult, lock

__all__ = ["Freshness", "LockResult", "check", "hold", "lock"]
