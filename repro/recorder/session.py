"""What a recorded process has done so far, and the events that say so.

The hooks tell it what happens; it decides where one step ends and the next
begins, as `docs/trace.md` defines a step, and writes.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from . import determinism, facts, meeting
from .clock import Clock
from .content import rest_digest, tensors_in, walk
from .emit import Writer, hexed
from .ending import Ending, leave
from .evaluation import Evaluation, root_form
from .guard import Guard, Leave, in_backward
from .loaders import copied_generators
from .modules import Modules
from .optimizers import Optimizers
from .parts import Later, fingerprints, short_forms
from .settings import Settings
from .steps import Step
from .weights import Weights

__all__ = ["Session"]


class Session:
    """The recording of one process.

    Args:
        settings: what the launcher asked for.
        writer: where events go.
        guard: runs work that torch or the interpreter calls at a time of its own.
    """

    def __init__(self, settings: Settings, writer: Writer, guard: Guard) -> None:
        self._settings = settings
        self._writer = writer
        self._guard = guard
        self.reset()

    def reset(self) -> None:
        """Begin anew, as in a forked child: what the parent did is not this process's."""
        self._optimizers = Optimizers()
        self._called: dict[int, weakref.ref[Module]] = {}
        self._weights = Weights(self._optimizers, self._called_modules, self._guard(self._lose_model))
        self._ending = Ending(self._weights)
        self._step = 0
        self._pending: Step | None = None
        self._evaluation: Evaluation | None = None
        self._stepping: int | None = None
        self._has_closure = False
        self._indices: dict[str, int] = {}
        self._copied: set[str] = set()
        self._started = self._ended = False
        self.clock = Clock(self._write, self._guard.seconds)
        """Measures what is not compared."""
        self._modules = Modules(self._settings.modules, self._write, self._guard)
        self._clear_step()

    def _clear_step(self) -> None:
        self._inputs: list[Later[list[list[Any]]]] = []
        self._losses: list[Later[dict[str, Any]]] = []
        self._backward_done = False

    def _called_modules(self) -> list[Module]:
        return [module for ref in self._called.values() if (module := ref()) is not None]

    def _write(self, event: Mapping[str, Any]) -> None:
        self._started = True
        if not self._ended:
            self._writer.write(event)

    # ------------------------------------------------------------------ passes

    def add_optimizer(self, optimizer: Optimizer) -> None:
        """Take note of an optimizer that was created."""
        self._optimizers.find(optimizer)

    def enter_forward(self, module: Module, *, grad: bool) -> None:
        """The program calls a module from outside any other."""
        self._weights.before(module)
        self._modules.training = grad
        if not grad:
            self._settle()
            return
        self._boundary()
        self.clock.start()

    def leave_forward(self, module: Module, args: Any, kwargs: Any, output: Any, *, grad: bool) -> None:
        """That module has returned."""
        given = [t for t in (*tensors_in(args), *tensors_in(kwargs)) if not t.requires_grad]
        if grad:
            self._called.setdefault(id(module), weakref.ref(module))
            self._inputs.append(short_forms(given))
            if next(module.parameters(), None) is not None:
                self.clock.fed(given)
            return
        if self._evaluation is None:
            self._evaluation = Evaluation()
        self._evaluation.add(given, list(tensors_in(output)))

    def module_returned(self, module: Module, output: Any) -> None:
        """A module has returned; asked for only where module calls are recorded."""
        self._modules.returned(module, output, self._step + 1)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """An outer backward pass begins at `roots`."""
        self._boundary()
        self._losses += [root_form(root) for root in roots]

    def after_backward(self) -> None:
        """An outer backward pass has ended."""
        self._backward_done = True
        if self._pending is not None and self._pending.in_backward:
            self._close_step()
        elif self._pending is None and "torch._dynamo" in sys.modules:
            self._watch_for_unseen_step()

    def next_pass(self) -> None:
        """A pass with gradients begins that no module call shows yet, as on a stage of a pipeline."""
        self._boundary()

    def _boundary(self) -> None:
        """A pass begins: what came before is complete, unless an optimizer runs it in its closure."""
        if not self._in_closure():
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

    def before_step(self, optimizer: Optimizer, *, closure: bool) -> None:
        """An optimizer is about to step. One that another one steps inside its own step is part of that."""
        if self._stepping is not None and self._stepping != id(optimizer):
            return
        inside = in_backward()
        known = self._optimizers.find(optimizer)
        if self._pending is not None and known.number in self._pending.done and not inside:
            self._close_step()
        step = self._begin_step()
        self._stepping, self._has_closure = id(optimizer), closure
        step.in_backward |= inside
        if not closure:
            step.look_at_grads(known)

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        if self._stepping != id(optimizer):
            return
        self._stepping = None
        known = self._optimizers.find(optimizer)
        step = self._begin_step()
        found = getattr(optimizer, "found_inf", None)
        if found is not None and step.note_found_inf(found):
            step.skip(known)
        else:
            if self._has_closure:
                step.look_at_grads(known)
            step.take(known)
        self._close_if_complete(step)

    def before_scaled_step(self, scale: Tensor | None) -> None:
        """A gradient scaler is about to step, or to skip."""
        self._begin_step().note_scale(scale)

    def after_scaled_step(self, optimizer: Optimizer, taken_before: int) -> None:
        """A gradient scaler has stepped or skipped an optimizer that had stepped `taken_before` times."""
        known = self._optimizers.find(optimizer)
        step = self._pending
        if step is not None and known.number not in step.done and known.taken == taken_before:
            step.skip(known)
            self._close_if_complete(step)

    def taken(self, optimizer: Optimizer) -> int:
        """Return how often an optimizer has stepped."""
        return self._optimizers.find(optimizer).taken

    def _begin_step(self) -> Step:
        if self._pending is None:
            self._stop_if_asked()
            if not self._weights.seen:
                self._show_model(self._weights.look())
            self._pending = Step(self._weights, full=self._settings.fingerprints(self._step + 1))
        return self._pending

    def _close_if_complete(self, step: Step) -> None:
        hooked = {known.number for known in self._optimizers.alive() if known.is_hooked()}
        if not step.in_backward and hooked <= step.done:
            self._close_step()

    def _close_step(self) -> None:
        step = self._pending
        if step is None or not step.done:
            return
        self._pending = None
        self._step += 1
        inputs = [form for forms in self._inputs for form in forms()]
        event = step.event(self._step, inputs, [loss() for loss in self._losses])
        if "optimizers" in event:
            self._ending.params = event.get("params")
        self._write(event)
        self.clock.step(self._step)
        self._clear_step()
        if self._step == self._settings.stop_after:
            meeting.arrive(self._settings.trace, self._step)

    def _stop_if_asked(self) -> None:
        if self._settings.stop_after is None or self._step < self._settings.stop_after:
            return
        meeting.wait(self._settings.trace, self._settings.stop_after)
        try:
            self.finish(stopped=True)
        finally:
            raise Leave(leave)

    def _show_model(self, event: dict[str, Any] | None) -> None:
        if event is not None:
            self._writer.write(facts.head(self._settings))
            for setting in determinism.changed(self._settings.level):
                self.failed("determinism", setting)
            self._write(event)

    def _lose_model(self) -> None:
        """The program lets go of a model, as at the end of a function: this is the last time to look."""
        if not self._ended:
            self._settle()
            self._ending.remember()

    # ------------------------------------------ steps of optimizers torch compiled

    def _watch_for_unseen_step(self) -> None:
        """Remember how often each parameter was written, to see a compiled optimizer by its effect."""
        if not self._weights.seen and self._optimizers.alive():
            self._show_model(self._weights.look(unless_orphans=True))
        self._optimizers.watch()

    def _take_unseen_step(self) -> None:
        if not self._backward_done or not self._weights.seen:
            return
        if written := self._optimizers.written():
            step = self._begin_step()
            step.note_unseen()
            for known in written:
                step.take(known)
            self._close_step()

    # ------------------------------------------------------------ other events

    def _close_evaluation(self) -> None:
        run, self._evaluation = self._evaluation, None
        if run is not None:
            self._write(run.event(self._step))
            self.clock.took("eval", run.seconds)

    def checkpoint(self, kind: str, api: str, value: Any, size: int | None, seconds: float) -> None:
        """A checkpoint was written (`save`) or read (`load`)."""
        self._settle()
        self._close_evaluation()
        found, rest = walk(value)
        forms = short_forms(list(found.values()))()
        index = self._indices.get(f"{kind} {api}", 0)
        self._indices[f"{kind} {api}"] = index + 1
        tensors = dict(zip(found, forms, strict=True))
        told = {"after": self._step, "api": api, "index": index, "bytes": size}
        self._write({"ev": kind, **told, "tensors": tensors, "rest": rest_digest(rest)})
        self.clock.took(kind, seconds)

    def look_at_loader(self, loader: Any) -> None:
        """A data loader begins an epoch."""
        for generator in copied_generators(loader):
            if generator not in self._copied:
                self._copied.add(generator)
                self.failed(
                    "data", f"worker-numpy-seed: every worker draws the same numbers from {generator}"
                )

    def observe(self, name: str, tensor: Tensor) -> None:
        """The program handed over a tensor to record."""
        self._settle()
        found = fingerprints([(name, tensor)], full=True)()[name]
        self._write({"ev": "observe", "after": self._step, "name": name, "fp": found})

    def imported(self, seconds: float) -> None:
        """The recorder was installed; writes the first line, so that it is known to be there."""
        self._writer.write({"ev": "time", "what": "import", "s": hexed(seconds)})

    def failed(self, where: str, message: str) -> None:
        """Something failed that is not the program's own doing."""
        self._writer.write({"ev": "err", "where": where, "message": message})

    def glance(self, optimizer: Optimizer) -> None:
        """Where only the end is recorded: learn at the first step what there is to look at then."""
        self._optimizers.find(optimizer)
        self._weights.glance()
        self._started = True

    def finish(self, *, stopped: bool = False) -> None:
        """The process ends; writes what is still open. Does nothing the second time."""
        if self._ended:
            return
        self._settle()
        self._close_evaluation()
        if not self._started:
            return
        steps = None if self._settings.only_end else self._step
        self._write(self._ending.event(steps, stopped=stopped))
        self._ended = True
        self._writer.sync()
