"""Whether recording a program changed it: what it ended with bare, against what it ended with recorded."""

from __future__ import annotations

from repro.noun import Noun

__all__ = ["Proof"]


class Proof(Noun):
    """A program run twice, once with nothing but a look at its end, once recorded in full."""

    ranks: int
    compared: dict[str, int]
    """How many of each kind were compared, over all ranks."""
    differing: tuple[str, ...]
    """What is not the same to the bit, `rank 0: params head.weight`; at most 20."""
    unknown: tuple[str, ...]
    """What could not be compared: gone before the end in either run."""
    files: int
    """Files that the program wrote the same to the byte in both runs."""
    files_differing: tuple[str, ...]
    """Others it wrote, in one run or in both; at most 20. A time in a file makes it differ."""

    @property
    def proven(self) -> bool | None:
        """Whether the two ends are the same to the bit; None where that could not be told."""
        if self.differing:
            return False
        return None if self.unknown else True
