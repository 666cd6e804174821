"""The same small language model trained by three frameworks, as their users would.

Run as `frameworks.py FOLDER NAME`; leaves `FOLDER/<name>-0.json`.
"""

# mypy: ignore-errors
from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FOLDER, NAME = Path(sys.argv[1]), sys.argv[2]


def tokens() -> torch.Tensor:
    return torch.randint(0, 50, (64, 12), generator=torch.Generator().manual_seed(7))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 16), nn.Dropout(0.1), nn.Linear(16, 50))

    def forward(self, x):
        return nn.functional.cross_entropy(self.body(x[:, :-1]).flatten(0, 1).float(), x[:, 1:].flatten())


def by_accelerate() -> nn.Module:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = DataLoader(TensorDataset(tokens()), batch_size=8, shuffle=True)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for (x,) in data:
        with accelerator.accumulate(model):
            accelerator.backward(model(x))
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return accelerator.unwrap_model(model)


def by_transformers() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Poison(TrainerCallback):
        """Makes one step's loss nan, which the trainer's own log then hides."""

        def on_step_begin(self, args, state, control, model=None, **kwargs):
            self.at = state.global_step
            if state.global_step == 3:
                model.register_forward_hook(lambda m, a, output: spoil(output, lambda: self.at))

    def spoil(output, at):
        if at() == 3:
            output["loss"] = output["loss"] * float("nan")
        return output

    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=12, n_embd=16, n_layer=1, n_head=2))
    rows = [{"input_ids": row, "labels": row} for row in tokens()]
    arguments = TrainingArguments(
        output_dir=str(FOLDER / "hf"),
        max_steps=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        logging_steps=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_grad_norm=1.0,
    )
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:16], callbacks=[Poison()])
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert all(float(loss) == float(loss) for loss in losses), losses
    return model


def by_lightning() -> nn.Module:
    import lightning

    class Task(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch, _):
            return self.net(batch[0])

        def validation_step(self, batch, _):
            self.log("loss", self.net(batch[0]))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    task = Task()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=3,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        default_root_dir=str(FOLDER / "pl"),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        val_check_interval=2,
        limit_val_batches=2,
    )
    rows = TensorDataset(tokens())
    trainer.fit(task, DataLoader(rows, batch_size=8, shuffle=True), DataLoader(rows, batch_size=8))
    return task


random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
trained = {"accelerate": by_accelerate, "transformers": by_transformers, "lightning": by_lightning}[NAME]()
tensors = [*trained.parameters(), torch.get_rng_state()]
state = hashlib.sha256(b"".join(t.detach().reshape(-1).numpy().tobytes() for t in tensors))
rng = repr((random.getstate(), np.random.get_state()[1].tobytes()))
result = {"pid": os.getpid(), "weights": state.hexdigest(), "rng": hashlib.sha256(rng.encode()).hexdigest()}
(FOLDER / f"{NAME}-0.json").write_text(json.dumps(result))
