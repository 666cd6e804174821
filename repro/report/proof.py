"""A proof that recording changes nothing, as text."""

from __future__ import annotations

from collections.abc import Iterator

from repro.proof import Proof
from repro.report.words import count

__all__ = ["proof_lines"]


def proof_lines(proof: Proof) -> Iterator[str]:
    """First the answer, then what is not the same or not known, then the files."""
    told = ", ".join(f"{amount} {kind}" for kind, amount in proof.compared.items())
    over = f"{told} on {count(proof.ranks, 'rank')}"
    if proof.proven:
        yield f"recording changed nothing: bare and recorded end with the same bits, {over}"
    elif proof.proven is None:
        yield f"cannot tell whether recording changed anything: the same bits so far, {over}"
    else:
        yield "bare and recorded end with other bits: recording changed the run, or it does not repeat itself"
    yield from proof.differing
    yield from (f"not known: {what}" for what in proof.unknown)
    if proof.files or proof.files_differing:
        others = "".join(f", {name} not" for name in proof.files_differing)
        yield f"files written: {proof.files} the same to the byte{others}"
