"""Two traces in, one verdict out. Pure: no clock, no machine, no torch."""

from repro.compare.explain import explain
from repro.compare.layout import one_rank
from repro.compare.localise import localise, locate, module_events
from repro.compare.repeat import self_replay, spread_note
from repro.compare.resumed import compare_resume
from repro.compare.runs import compare, incomparable

__all__ = [
    "compare",
    "compare_resume",
    "explain",
    "incomparable",
    "localise",
    "locate",
    "module_events",
    "one_rank",
    "self_replay",
    "spread_note",
]
