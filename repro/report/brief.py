"""A step's loss and gradient norm, read from its line without parsing the fingerprints of its tensors."""

from __future__ import annotations

import json
import re

from repro.trace import Event

__all__ = ["brief_step", "steps_alone"]

_STEP = re.compile(rb'\{(?:"boundary":1,)?"ev":"step",(?:"grad_norm":("[^"\\]*"|null),)?"grads":').match
_MEASURED = re.compile(rb'\{(?:"\w+":(?:"[^"\\]*"|null|[0-9]+),)*"ev":"(?:time|mem)"').match
_LOSS = b',"loss":['
_NUMBER = b',"step":'


def brief_step(line: bytes) -> Event | None:
    """Return a step as an event with `loss`, `grad_norm` and `step` alone.

    Args:
        line: a line of a trace, with its line end.

    Returns:
        None where the line is no step, or a step whose members stand in another order than the recorder
        writes them; such a line has to be parsed as a whole.
    """
    found = _STEP(line)
    if found is None or line.count(_LOSS) > 1 or line.count(_NUMBER) != 1:
        return None
    event: Event = {"ev": "step"}
    try:
        event["step"] = int(line[line.index(_NUMBER) + len(_NUMBER) : -2])
        if (at := line.find(_LOSS)) >= 0:
            event["loss"] = json.loads(line[at + len(_LOSS) - 1 : line.index(b"]", at) + 1])
    except ValueError:
        return None
    if found[1] is not None:
        event["grad_norm"] = json.loads(found[1])
    return event


def steps_alone(line: bytes) -> Event | None:
    """Do the same, and read of times and of memory no more than that they are such."""
    return {"ev": "time"} if _MEASURED(line) else brief_step(line)
