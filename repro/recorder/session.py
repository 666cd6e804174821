"""What a recorded process has done so far, and the events that say so.

The hooks tell it what happens; it decides where one step ends and the next
begins, as `docs/trace.md` defines a step, and writes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import facts
from .content import rest_digest, tensors_in, walk
from .emit import Writer, hexed
from .guard import in_backward
from .measure import memory, rng
from .names import ModelView
from .parts import Later, fingerprints, floats_text, local_part, norms, short_forms, sketch_sum
from .settings import Settings

__all__ = ["Session"]

_Tensor = torch.Tensor
_Optimizer = torch.optim.Optimizer

_LISTED_OUTPUTS = 64
_OUTPUT_BUCKETS = 16


class _Known:
    """An optimizer that exists."""

    def __init__(self, number: int, optimizer: _Optimizer) -> None:
        self.number = number
        self.taken = 0
        self.ref = weakref.ref(optimizer)
        self.versions: list[int] | None = None

    def groups(self) -> list[list[_Tensor]]:
        """Return its parameters per group; none where it is gone."""
        optimizer = self.ref()
        return [] if optimizer is None else [list(group["params"]) for group in optimizer.param_groups]


class _Step:
    """A step that has begun and may not be complete."""

    def __init__(self, *, full: bool) -> None:
        self.full = full
        self.done: set[int] = set()
        self.optimizers: list[dict[str, Any]] = []
        self.grads: dict[int, Later[dict[str, dict[str, Any]]]] = {}
        self.params: dict[int, Later[dict[str, dict[str, Any]]]] = {}
        self.rng: dict[str, str] = {}
        self.scaler: dict[str, Any] | None = None
        self.extra: dict[str, Any] = {}


class _Evaluation:
    """Forward passes without gradients that follow each other."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.ended = self.started
        self.forwards = 0
        self.inputs: list[list[Any]] = []
        self.outputs: list[list[Any]] = []
        self.scalars: list[str] = []
        self.sketch = torch.zeros(_OUTPUT_BUCKETS, dtype=torch.float64, device="cpu")


class Session:
    """The recording of one process.

    Args:
        settings: what the launcher asked for.
        writer: where events go.
        spent: returns the seconds the recorder has used so far.
    """

    def __init__(self, settings: Settings, writer: Writer, spent: Callable[[], float]) -> None:
        self._settings = settings
        self._writer = writer
        self._spent = spent
        self.data_wait = 0.0
        """Seconds the program waited for data loaders since the last step."""
        self._known: dict[int, _Known] = {}
        self._numbers = 0
        self._called: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._indices: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """Begin anew, as in a forked child: what the parent did is not this process's."""
        self._step = 0
        self._pending: _Step | None = None
        self._evaluation: _Evaluation | None = None
        self._stepping: int | None = None
        self._has_closure = False
        self._model: ModelView | None = None
        self._last_params: dict[str, dict[str, Any]] | None = None
        self._started = False
        self._ended = False
        self._clock: float | None = None
        self._recorder_seconds = 0.0
        self._clear_step()

    def _clear_step(self) -> None:
        self._inputs: list[Later[list[list[Any]]]] = []
        self._losses: list[Later[dict[str, Any]]] = []
        self._backward_done = False
        self.data_wait = 0.0

    def _write(self, event: dict[str, Any]) -> None:
        self._started = True
        self._writer.write(event)

    # ------------------------------------------------------------------ passes

    def add_optimizer(self, optimizer: _Optimizer) -> None:
        """Take note of an optimizer; its number is its place in the order of creation."""
        self._find(optimizer)

    def _find(self, optimizer: _Optimizer) -> _Known:
        known = self._known.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            known = self._known[id(optimizer)] = _Known(self._numbers, optimizer)
            self._numbers += 1
        return known

    def _alive(self) -> list[_Known]:
        return [known for known in self._known.values() if known.ref() is not None]

    def enter_forward(self, *, grad: bool) -> None:
        """The program calls a module from outside any other."""
        if not grad:
            self._settle()
            return
        self._boundary()
        if self._clock is None:
            self._clock = time.perf_counter()

    def leave_forward(
        self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any, *, grad: bool
    ) -> None:
        """That module has returned."""
        given = [t for t in (*tensors_in(args), *tensors_in(kwargs)) if not t.requires_grad]
        if grad:
            self._called.setdefault(id(module), weakref.ref(module))
            self._inputs.append(short_forms(given))
        else:
            self._evaluate(given, list(tensors_in(output)))

    def _evaluate(self, given: list[_Tensor], outputs: list[_Tensor]) -> None:
        if self._evaluation is None:
            self._evaluation = _Evaluation()
        run = self._evaluation
        run.forwards += 1
        run.inputs += short_forms(given)()
        run.outputs += short_forms(outputs)()
        parts = [local_part(tensor) for tensor in outputs]
        run.sketch += sketch_sum(parts, _OUTPUT_BUCKETS)
        run.scalars += [hexed(float(t)) for t in outputs if t.numel() == 1 and t.is_floating_point()]
        run.ended = time.perf_counter()

    def before_backward(self, roots: Sequence[_Tensor]) -> None:
        """An outer backward pass begins at `roots`."""
        self._boundary()
        self._losses += [_loss(root) for root in roots]

    def after_backward(self) -> None:
        """An outer backward pass has ended."""
        self._backward_done = True
        if self._pending is not None and self._pending.extra.get("in_backward"):
            self._close_step()
        elif "torch._dynamo" in sys.modules and self._pending is None:
            self._watch_versions()

    def _boundary(self) -> None:
        """A pass begins: what came before is complete, unless an optimizer runs it in a closure."""
        if self._in_closure():
            return
        self._stepping = None
        self._settle()
        self._close_evaluation()
        self._stop_if_asked()

    def _in_closure(self) -> bool:
        return self._stepping is not None and self._has_closure

    def _settle(self) -> None:
        """Write down the step that the program has left behind, if there is one."""
        if not self._in_closure():
            self._close_step()
            self._take_unseen_step()

    # ------------------------------------------------------------------- steps

    def before_step(self, optimizer: _Optimizer, *, closure: bool) -> None:
        """An optimizer is about to step."""
        if self._stepping is not None and self._stepping != id(optimizer):
            return
        inside = in_backward()
        known = self._find(optimizer)
        if self._pending is not None and known.number in self._pending.done and not inside:
            self._close_step()
        if self._pending is None:
            self._stop_if_asked()
        self._stepping, self._has_closure = id(optimizer), closure
        self._look_at_model()
        step = self._begin_step()
        if inside:
            step.extra["in_backward"] = True
        if not closure:
            step.grads[known.number] = self._grads(known, optimizer)

    def after_step(self, optimizer: _Optimizer) -> None:
        """An optimizer has stepped."""
        if self._stepping != id(optimizer):
            return
        self._stepping = None
        known = self._find(optimizer)
        step = self._begin_step()
        found = getattr(optimizer, "found_inf", None)
        if found is not None:
            step.extra["found_inf"] = hexed(float(found))
        if found is not None and float(found) > 0:
            step.grads.pop(known.number, None)
            self._skip(known)
        else:
            if self._has_closure:
                step.grads[known.number] = self._grads(known, optimizer)
            self._take(known, optimizer, step)
        self._close_if_complete()

    def _take(self, known: _Known, optimizer: _Optimizer, step: _Step) -> None:
        step.optimizers.append(
            {"i": known.number, "cls": type(optimizer).__name__, "k": known.taken, "hyper": _hyper(optimizer)}
        )
        known.taken += 1
        known.versions = None
        step.done.add(known.number)
        step.rng = rng()
        if step.full:
            step.params[known.number] = self._prints(self._named(known), full=True)

    def _begin_step(self) -> _Step:
        if self._pending is None:
            self._pending = _Step(full=self._settings.fingerprints(self._step + 1))
        return self._pending

    def _close_if_complete(self) -> None:
        step = self._pending
        if step is None or step.extra.get("in_backward"):
            return
        if {known.number for known in self._alive() if _is_hooked(known.ref())} <= step.done:
            self._close_step()

    def before_scaled_step(self, scale: float | None) -> None:
        """A gradient scaler is about to step, or to skip."""
        if self._pending is None:
            self._stop_if_asked()
            self._look_at_model()
        step = self._begin_step()
        skipped = step.scaler is not None and step.scaler["skipped"]
        step.scaler = {"scale": None if scale is None else hexed(scale), "skipped": skipped}

    def after_scaled_step(self, optimizer: _Optimizer, steps_before: int) -> None:
        """A gradient scaler has stepped or skipped an optimizer that had stepped `steps_before` times."""
        known = self._find(optimizer)
        if (
            self._pending is not None
            and known.number not in self._pending.done
            and known.taken == steps_before
        ):
            self._skip(known)
            self._close_if_complete()

    def steps_of(self, optimizer: _Optimizer) -> int:
        """Return how often an optimizer has stepped."""
        return self._find(optimizer).taken

    def _skip(self, known: _Known) -> None:
        step = self._begin_step()
        step.done.add(known.number)
        step.rng = rng()
        if step.scaler is not None:
            step.scaler["skipped"] = True

    def _close_step(self) -> None:
        step = self._pending
        if step is None or not step.done:
            return
        self._pending = None
        self._step += 1
        event: dict[str, Any] = {"ev": "step", "step": self._step, "rng": step.rng, **step.extra}
        event["inputs"] = [form for forms in self._inputs for form in forms()]
        event["loss"] = [loss() for loss in self._losses]
        if step.scaler is not None:
            event["scaler"] = step.scaler
        if step.optimizers:
            event["optimizers"] = step.optimizers
            event["grads"] = _merged(step.grads)
            event["grad_norm"] = hexed(_total(event["grads"].values()))
            if step.full:
                event["params"] = self._last_params = _merged(step.params)
            else:
                self._last_params = None
        self._write(event)
        self._measure()
        self._clear_step()

    def _measure(self) -> None:
        now, spent = time.perf_counter(), self._spent()
        timing: dict[str, Any] = {
            "ev": "time",
            "step": self._step,
            "data_wait_s": hexed(self.data_wait),
            "recorder_s": hexed(spent - self._recorder_seconds),
        }
        if self._clock is not None:
            timing["s"] = hexed(now - self._clock)
        self._clock, self._recorder_seconds = now, spent
        self._write(timing)
        self._write({"ev": "mem", "step": self._step, **memory()})

    def _stop_if_asked(self) -> None:
        if self._settings.stop_after is None or self._step < self._settings.stop_after:
            return
        try:
            self.finish(stopped=True)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            if "multiprocessing" in sys.modules:
                for child in sys.modules["multiprocessing"].active_children():
                    child.terminate()
        finally:
            os._exit(0)

    # ------------------------------------------------ steps that no hook reports

    def _watch_versions(self) -> None:
        """Remember how often each parameter was written, to see a compiled optimizer by its effect."""
        if self._model is None and any(known.ref() is not None for known in self._known.values()):
            view = self._view()
            if not view.orphans:
                self._show_model(view)
        for known in self._alive():
            known.versions = [p._version for group in known.groups() for p in group]

    def _take_unseen_step(self) -> None:
        if not self._backward_done or self._model is None:
            return
        changed = [known for known in self._alive() if known.versions is not None and _written(known)]
        if not changed:
            return
        step = self._begin_step()
        step.extra["boundary"] = 1
        for known in changed:
            optimizer = known.ref()
            if optimizer is not None:
                self._take(known, optimizer, step)
        self._close_step()

    # ------------------------------------------------------------------- model

    def _view(self) -> ModelView:
        optimized = [known.groups() for known in self._known.values()]
        called = [module for ref in self._called.values() if (module := ref()) is not None]
        return ModelView(optimized, called)

    def _look_at_model(self) -> None:
        if self._model is None:
            self._show_model(self._view())

    def _show_model(self, view: ModelView) -> None:
        self._model = view
        self._writer.write(facts.head(self._settings))
        self._write(
            {
                "ev": "model",
                "cls": view.cls,
                "tree": view.tree,
                "rows": view.rows,
                "params": self._prints(_present(view.parameters), full=True)(),
                "buffers": self._prints(_present(view.buffers), full=True)(),
            }
        )

    def _named(self, known: _Known) -> list[tuple[str, _Tensor]]:
        assert self._model is not None
        groups = known.groups()
        if any(self._model.name(p) is None for group in groups for p in group):
            self._model = self._view()
        named = [(self._model.name(p), p) for group in groups for p in group]
        return [(name, p) for name, p in named if name is not None]

    def _grads(self, known: _Known, optimizer: _Optimizer) -> Later[dict[str, dict[str, Any]]]:
        scale = getattr(optimizer, "grad_scale", None)
        named = [(name, p.grad) for name, p in self._named(known) if p.grad is not None]
        return self._prints(
            named, full=self._begin_step().full, divide=None if scale is None else float(scale)
        )

    def _prints(
        self,
        named: list[tuple[str, _Tensor]],
        *,
        full: bool,
        sketch: bool = True,
        divide: float | None = None,
    ) -> Later[dict[str, dict[str, Any]]]:
        assert self._model is not None
        replicas = self._model.replicas if facts.place()[0] > 0 else False
        return fingerprints(named, full=full, sketch=sketch, divide=divide, replicas=replicas)

    # ------------------------------------------------------------ other events

    def _close_evaluation(self) -> None:
        run, self._evaluation = self._evaluation, None
        if run is None:
            return
        outputs: list[Any] = run.outputs[:_LISTED_OUTPUTS]
        if len(run.outputs) > _LISTED_OUTPUTS:
            outputs.append(_sha256(run.outputs[_LISTED_OUTPUTS:]))
        self._write(
            {
                "ev": "eval",
                "after": self._step,
                "forwards": run.forwards,
                "inputs": _sha256(run.inputs),
                "outputs": outputs,
                "scalars": run.scalars[:_LISTED_OUTPUTS],
                "sk": floats_text(run.sketch),
            }
        )
        self._write({"ev": "time", "what": "eval", "s": hexed(run.ended - run.started)})

    def checkpoint(self, kind: str, api: str, value: Any, size: int | None, seconds: float) -> None:
        """A checkpoint was written (`save`) or read (`load`)."""
        self._settle()
        self._close_evaluation()
        found, rest = walk(value)
        forms = short_forms(list(found.values()))()
        index = self._indices.get(f"{kind} {api}", 0)
        self._indices[f"{kind} {api}"] = index + 1
        self._write(
            {
                "ev": kind,
                "after": self._step,
                "api": api,
                "index": index,
                "tensors": dict(zip(found, forms, strict=True)),
                "rest": rest_digest(rest),
                "bytes": size,
            }
        )
        self._write({"ev": "time", "what": kind, "s": hexed(seconds)})

    def observe(self, name: str, tensor: _Tensor) -> None:
        """The program handed over a tensor to record."""
        self._settle()
        found = fingerprints([(name, tensor)], full=True)()[name]
        self._write({"ev": "observe", "after": self._step, "name": name, "fp": found})

    def imported(self, seconds: float) -> None:
        """The recorder was installed, in `seconds`; the first line is written, so that it is known to be there."""
        self._writer.write({"ev": "time", "what": "import", "s": hexed(seconds)})

    def failed(self, where: str, message: str) -> None:
        """Something the recorder wanted to do failed."""
        self._writer.write({"ev": "err", "where": where, "message": message})

    def finish(self, *, stopped: bool = False) -> None:
        """The process ends; writes what is still open. Does nothing the second time."""
        if self._ended:
            return
        self._settle()
        self._close_evaluation()
        self._ended = True
        if not self._started:
            return
        event: dict[str, Any] = {"ev": "end", "step": self._step, "rng": rng()}
        params = self._final_params()
        if params is not None:
            event["params"] = params
        if stopped:
            event["stopped"] = True
        self._write(event)
        self._writer.sync()

    def _final_params(self) -> dict[str, dict[str, Any]] | None:
        if self._model is None:
            return None
        present = _present(self._model.parameters)
        if present and len(present) == len(self._model.parameters):
            return self._prints(present, full=True, sketch=False)()
        return self._last_params


def _is_hooked(optimizer: Any) -> bool:
    """Whether torch calls step hooks for this object; wrappers that only look like optimizers have none."""
    return bool(getattr(type(optimizer).step, "hooked", False))


def _written(known: _Known) -> bool:
    return known.versions != [p._version for group in known.groups() for p in group]


def _present(named: Sequence[tuple[str, weakref.ref[_Tensor]]]) -> list[tuple[str, _Tensor]]:
    return [(name, tensor) for name, ref in named if (tensor := ref()) is not None]


def _merged(prints: Mapping[int, Later[dict[str, dict[str, Any]]]]) -> dict[str, dict[str, Any]]:
    return {name: entry for get in prints.values() for name, entry in get().items()}


def _total(prints: Any) -> float:
    measured = [float.fromhex(entry["l2"]) for entry in prints if "l2" in entry]
    return math.sqrt(sum(norm * norm for norm in measured))


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _loss(root: _Tensor) -> Later[dict[str, Any]]:
    part = local_part(root)
    dtype = str(part.dtype)[6:]
    if part.values is not None and part.count == 1 and part.dtype.is_floating_point:
        value = part.values.clone()
        return lambda: {"bits": hexed(float(value)), "dtype": dtype}
    measured = norms([part])

    def get() -> dict[str, Any]:
        l2 = measured()[0]
        return {"shape": list(part.shape), "dtype": dtype, "l2": None if l2 is None else hexed(l2)}

    return get


def _setting(value: Any) -> Any:
    """A hyper-parameter as JSON, or Ellipsis for what is no setting."""
    if isinstance(value, torch.Tensor):
        return hexed(float(value)) if value.numel() == 1 else ...
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return hexed(value)
    if isinstance(value, (tuple, list)):
        items = [_setting(item) for item in value]
        return ... if ... in items else items
    return ...


def _hyper(optimizer: _Optimizer) -> list[dict[str, Any]]:
    groups = []
    for group in optimizer.param_groups:
        settings = {
            key: _setting(value) for key, value in group.items() if key not in ("params", "param_names")
        }
        groups.append({key: value for key, value in settings.items() if value is not ...})
    return groups
