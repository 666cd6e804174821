"""The verb `lock`: `repro.spec.Spec` becomes `repro.lock.Lock`.

The folder is called `resolve` because `repro/lock.py` is the noun.
"""
