"""What recording costs: one training loop bare, with scalars only, and with the default fingerprints.

A decoder of 54.7 million parameters takes steps on 512 tokens, deliberately few:
the cost of recording is per parameter, that of a step per token. The three kinds
take turns, so that a busy machine slows all alike; times are CPU seconds of one
thread, and a step is the median over the rounds.

    python bench/recorder.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = {"bare": None, "scalars": "1000000", "default": "5"}
"""What is recorded: REPRO_EVERY of each kind, None for no recorder."""
STEPS = 13
WARM = 3
"""Steps left out: caches, and the fingerprints of the first three steps."""


def child() -> None:
    """Train, and print the CPU seconds of each step after the warm ones."""
    import time

    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    width, layers, vocabulary, length = 512, 12, 16384, 128

    class Decoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            layer = nn.TransformerEncoderLayer(
                width, 8, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, x):  # type: ignore[no-untyped-def]
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
            return self.head(self.body(h, mask=mask, is_causal=True))

    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = torch.randint(0, vocabulary, (4, length + 1))
    seconds = []
    for _ in range(STEPS):
        started = time.process_time()
        optimizer.zero_grad()
        logits = model(text[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.process_time() - started)
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"parameters": parameters, "seconds": seconds[WARM:]}))


def measure(every: str | None) -> tuple[int, list[float], int]:
    """Run the loop once; return parameters, seconds of each step, and bytes of trace."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("REPRO_", "PYTHON"))}
    environment["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        if every is not None:
            inject = str(ROOT / "repro" / "recorder" / "inject")
            environment |= {"PYTHONPATH": inject, "REPRO_TRACE": folder, "REPRO_EVERY": every}
        command = [sys.executable, str(Path(__file__)), "--child"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    found = json.loads(done.stdout)
    return found["parameters"], found["seconds"], size


def mean_step(steps: list[list[float]], every: int) -> float:
    """Mean of the median fingerprinted step and the median other one, as often as each comes."""
    numbered = [(number, seconds) for run in steps for number, seconds in enumerate(run, WARM + 1)]
    full = [seconds for number, seconds in numbered if number % every == 0]
    plain = statistics.median(seconds for number, seconds in numbered if number % every)
    return plain if not full else plain + (statistics.median(full) - plain) / every


def main() -> None:
    """Measure every kind in turn, several rounds, and print the mean step and its ratio to bare."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    steps: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    sizes = dict.fromkeys(KINDS, 0)
    parameters = 0
    for _ in range(rounds):
        for kind, every in KINDS.items():
            parameters, seconds, sizes[kind] = measure(every)
            steps[kind].append(seconds)
    bare = mean_step(steps["bare"], 10**9)
    print(f"{parameters / 1e6:.1f} M parameters, {rounds} rounds of {STEPS - WARM} steps, CPU seconds a step")
    for kind, every in KINDS.items():
        step = mean_step(steps[kind], int(every or 10**9))
        print(f"{kind:8} {step:.3f}  x{step / bare:.4f}  {sizes[kind] / STEPS / 1e6:.2f} MB of trace a step")


if __name__ == "__main__":
    child() if "--child" in sys.argv else main()
