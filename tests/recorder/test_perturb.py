"""Perturbations: they change what they say they change, by a last bit, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.recorder.recorder_world import bare_environment

pytestmark = pytest.mark.torch

PROGRAM = """
import sys
import torch
from torch import nn
from repro.recorder import perturb

perturb.apply(sys.argv[1])
dtype = getattr(torch, sys.argv[2])
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)).to(dtype)
before = [weight.detach().clone() for weight in model.parameters()]
given = torch.ones(4, 64, dtype=dtype)
plain = nn.functional.linear(given, before[0], before[1])
seen = {}
model[0].register_forward_hook(lambda module, args, out: seen.update(first=out.detach().clone()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
state = torch.get_rng_state()
model(given).square().mean().backward()
gradients = [weight.grad.clone() for weight in model.parameters()]
moved = [weight.detach().clone() for weight in model.parameters()]
optimizer.step()

def apart(a, b):
    return float(((a - b).abs().double() / a.abs().double().clamp_min(1e-30)).max())

print(max(map(apart, before, moved)))
print(apart(plain, seen["first"]))
print(max(map(apart, gradients, [weight.grad for weight in model.parameters()])))
rates = [((old - new).double() / new.grad.double()).median() for old, new in zip(moved, model.parameters())]
print(float(sum(rates) / len(rates)))
print(optimizer.param_groups[0]["lr"])
print(bool((torch.get_rng_state() == state).all()))
"""


def measured(order: str, dtype: str = "float64") -> list[float]:
    """Relative change of weights, first activations and gradients; rate taken, rate kept, RNG untouched."""
    command = [sys.executable, "-c", PROGRAM, order, dtype]
    done = subprocess.run(command, env=bare_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [
        float(line == "True") if line in ("True", "False") else float(line) for line in done.stdout.split()
    ]


ULP = 2.0**-52


@pytest.mark.parametrize(
    ("order", "weights", "activations", "gradients"),
    [
        ("weights-1", True, True, False),
        ("activations-1", False, True, False),
        ("gradients-1", False, False, True),
    ],
)
def test_noise_is_in_the_last_bit_and_where_it_belongs(
    order: str, weights: bool, activations: bool, gradients: bool
) -> None:
    changed = measured(order)
    allowed = [2 * ULP, 300 * ULP, 2.0**-22]  # sums of 64 products; gradients take the coarser fp32
    for value, expected, most in zip(changed, (weights, activations, gradients), allowed, strict=False):
        assert (0 < value <= most) if expected else value == 0
    assert changed[4] == 0.5
    assert changed[5] == 1.0, "the program's own random numbers were touched"


def test_a_narrow_type_gets_noise_of_its_own_size() -> None:
    assert 2.0**-9 < measured("weights-1", "bfloat16")[0] <= 2.0**-7


def test_the_rate_is_raised_for_the_step_alone() -> None:
    changed = measured("rate-1")
    assert changed[:3] == [0, 0, 0]
    assert changed[3] == pytest.approx(0.505)
    assert changed[4] == 0.5


def test_another_seed_is_other_noise_and_the_same_seed_the_same() -> None:
    first, again, other = measured("weights-1"), measured("weights-1"), measured("weights-2")
    assert first == again != other
