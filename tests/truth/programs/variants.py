"""One training run in many variants, each in a child of its own; prints `<variant> <pid>` for each.

A variant is a name, then settings as `key=value`; what a setting does is what the code that reads it says.
Knows no recorder.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

Options = dict[str, float]

STEPS = 16


class Pilot(NamedTuple):
    """What one program trains."""

    build: Callable[[Options], nn.Module]
    batch: Callable[[torch.Generator, Options], tuple[Tensor, Tensor]]
    """Inputs and labels of one step."""
    optimizer: Callable[[Any, Options], torch.optim.Optimizer]
    clip: float


def noisy(value: Tensor, size: float, draw: torch.Generator) -> Tensor:
    """Multiply every element by `1 ± size`."""
    signs = torch.randint(0, 2, value.shape, generator=draw) * 2 - 1
    return value * (1 + size * signs)


def prepare(model: nn.Module, options: Options, draw: torch.Generator) -> None:
    """Change weights, or what modules put out, before the first step."""
    with torch.no_grad():
        for weight in model.parameters():
            if size := options.get("weights"):
                weight.copy_(noisy(weight, size, draw))
    if little := options.get("activations"):
        for module in model.modules():
            if not list(module.children()):
                module.register_forward_hook(lambda module, given, out: noisy(out, little, draw))
    if options.get("frozen"):
        list(model.parameters())[-3].requires_grad_(False)


def loss_of(model: nn.Module, inputs: Tensor, labels: Tensor, options: Options) -> Tensor:
    """Mean cross-entropy over all labels."""
    logits = model(inputs)
    logits = logits.flatten(0, -2)
    if options.get("nll"):
        loss = F.nll_loss(logits.float().log_softmax(-1), labels)
    else:
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=options.get("smooth", 0.0))
    last = list(model.parameters())[-1]
    return loss * options.get("times", 1.0) + options.get("l2", 0.0) * last.square().sum()


def tamper(step: int, labels: Tensor, inputs: Tensor, options: Options) -> None:
    """Spoil one label or one input of one step."""
    if step == options.get("label"):
        labels[0] = (labels[0] + 1) % 7
    if step == options.get("byte"):
        inputs.view(-1)[0] += 1


def step_of(
    pilot: Pilot,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    options: Options,
    draw: torch.Generator,
) -> None:
    """Compute the gradients of one step, clipped."""
    if not options.get("keep"):
        optimizer.zero_grad()
    pieces = int(options.get("pieces", 1))
    autocast = torch.autocast("cpu", dtype=torch.bfloat16) if options.get("bf16") else nullcontext()
    inputs, labels = batch
    for part, told in zip(inputs.chunk(pieces), labels.chunk(pieces), strict=True):
        with autocast:
            loss = loss_of(model, part, told, options) / (1 if options.get("unscaled") else pieces)
        loss.backward()
    for weight in model.parameters():
        if weight.grad is not None and (size := options.get("gradients")):
            weight.grad = noisy(weight.grad, size, draw)
    torch.nn.utils.clip_grad_norm_(model.parameters(), options.get("clip", pilot.clip))


def train(pilot: Pilot, options: Options) -> None:
    """One run."""
    torch.set_num_threads(int(options.get("threads", 1)))
    torch.backends.mkldnn.enabled = not options.get("nomkldnn")
    random.seed(11)  # Python seeds it anew in every child
    torch.manual_seed(11 + int(options.get("seed", 0)))
    model = pilot.build(options)
    if options.get("double"):
        model.double()
    draw = torch.Generator().manual_seed(int(options.get("draw", 1)))
    prepare(model, options, draw)
    optimizer = pilot.optimizer(model.parameters(), options)
    warm = int(options.get("warm", 4))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm))
    order = torch.Generator().manual_seed(5 + int(options.get("data", 0)))
    for _ in range(int(options.get("skip", 0))):
        pilot.batch(order, options)
    for step in range(int(options.get("steps", STEPS))):
        kept = order.get_state()
        inputs, labels = pilot.batch(order, options)
        if step == options.get("repeat"):
            order.set_state(kept)
        if options.get("double") and inputs.is_floating_point():
            inputs = inputs.double()
        tamper(step, labels, inputs, options)
        if step == options.get("eval"):
            model.eval()
        step_of(pilot, model, optimizer, (inputs, labels), options, draw)
        model.train()
        if step == options.get("lost"):
            optimizer.zero_grad()
        if step == options.get("bump"):
            with torch.no_grad():
                next(iter(model.parameters())).mul_(1 + options.get("by", 1e-4))
        optimizer.step()
        if step == options.get("forget"):
            optimizer.state.clear()
        schedule.step()


def main(pilot: Pilot, arguments: list[str]) -> None:
    """Train every variant that is asked for."""
    for line in arguments:
        name, *settings = line.split()
        options = {key: float(value) for key, _, value in (one.partition("=") for one in settings)}
        child = os.fork()
        if child == 0:
            train(pilot, options)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"{name} failed")
        sys.stdout.write(f"{name} {child}\n")
