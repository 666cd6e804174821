"""Each way in which two runs can differ has its own outcome, kind and words."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from repro.compare import compare, self_replay, spread_note
from repro.digest import pretty_json
from repro.errors import CompareError, TraceError
from repro.strictjson import loads
from repro.tolerance import ToleranceSpec
from repro.trace import Trace, hexed
from repro.verdict import Comparability, Outcome, Verdict
from tests.compare.tracegen import Config, Events, edited, fp, phase_of, ranks_of, step_event, trace_of

BASE = Config()
BITWISE = ToleranceSpec()
LOOSE = ToleranceSpec.parse(
    {
        "same": {
            name: {"rtol": 1e-3, "atol": 1e-9} for name in ("loss", "grad_norm", "grads", "params", "eval")
        }
    }
)


def judged(candidate: Trace | None, *, tolerance: ToleranceSpec = BITWISE, **options: Any) -> Verdict:
    verdict = compare(trace_of(BASE), candidate, tolerance=tolerance, **options)
    loads(pretty_json(verdict.tree()), where="verdict")
    assert Verdict.parse(verdict.tree()) == verdict
    return verdict


def test_equal_runs_are_bitwise_whatever_clocks_say() -> None:
    verdict = judged(trace_of(replace(BASE, noise_seed=5)))
    assert (verdict.outcome, verdict.kind, verdict.layer) == (Outcome.BITWISE, "equal", "bitwise")
    assert verdict.compared.steps == 8
    assert verdict.compared.ranks == 2
    assert verdict.sentence == "Reproduced to the bit: 8 steps on 2 ranks, phases full."


@pytest.mark.parametrize(
    ("candidate", "kind", "step", "sentence"),
    [
        (
            replace(BASE, lr=6e-4),
            "hyper-parameters-differ",
            1,
            "Diverged at step 1, rank 0: the hyper-parameter lr of optimizer 0 group 0 differs first: "
            "0.0003 in the target, 0.0006 in the candidate.",
        ),
        (
            replace(BASE, seed=8),
            "weights-before-differ",
            0,
            "Diverged before step 1, rank 0: 3 of 3 initial weights differ first, ",
        ),
        (
            replace(BASE, data_changed_from=4),
            "inputs-differ",
            4,
            "Diverged at step 4, rank 0: the data differ first (inputs, number 0).",
        ),
        (
            replace(BASE, activation="GELU(approximate='tanh')"),
            "modules-differ",
            0,
            "Diverged before step 1, rank 0: the module act differs first: "
            "GELU(text=GELU(approximate='none')) in the target, "
            "GELU(text=GELU(approximate='tanh')) in the candidate.",
        ),
        (replace(BASE, steps=6), "gradients-differ", 6, ""),
    ],
)  # fmt: skip
def test_first_cause(candidate: Config, kind: str, step: int, sentence: str) -> None:
    verdict = judged(trace_of(candidate))
    if candidate.steps != BASE.steps:
        # the last step carries fingerprints, so step 6 is told apart by its form; that is no difference
        kind, step, sentence = (
            "steps-missing",
            7,
            "Diverged at step 7, rank 0: the candidate lacks this step: ",
        )
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, kind)
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == step
    assert verdict.sentence.startswith(sentence)


def change(rank: int, step: int, edit: Callable[[dict[str, Any]], None]) -> Trace:
    return edited(BASE, lambda ranks: edit(step_event(ranks[rank], step)))


def _float32_up(text: str) -> str:
    bits = struct.unpack("<I", struct.pack("<f", float.fromhex(text)))[0]
    return hexed(float(struct.unpack("<f", struct.pack("<I", bits + 1))[0]))


def _loss_up(event: dict[str, Any]) -> None:
    event["loss"][0]["bits"] = _float32_up(event["loss"][0]["bits"])


def _grad(event: dict[str, Any]) -> None:
    event["grads"]["blocks.1.bias"] = fp([1.0, 2.0, 3.0, 4.0])


def _update(event: dict[str, Any]) -> None:
    event["params"]["head.weight"] = fp([1.0, 2.0, 3.0, 4.0, 5.0])


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(event: dict[str, Any]) -> None:
        *parents, last = path.split("/")
        place: Any = event
        for part in parents:
            place = place[int(part) if part.isdigit() else part]
        place[int(last) if last.isdigit() else last] = value

    return edit


@pytest.mark.parametrize(
    ("step", "edit", "layer", "kind", "observable"),
    [
        (4, _loss_up, "bitwise", "loss-differs", "loss"),
        (3, _grad, "bitwise", "gradients-differ", "grads"),
        (3, _update, "bitwise", "update-differs", "params"),
        (4, _set("grad_norm", "0x1.8p+1"), "bitwise", "gradient-norm-differs", "grad_norm"),
        (4, _set("rng/torch", "0" * 32), "exact", "rng-differs", "rng.torch"),
        (4, _set("rng/cuda:0", "0" * 32), "exact", "rng-differs", "rng.cuda:0"),
        (4, _set("optimizers/0/cls", "Adam"), "exact", "optimizers-differ", "optimizers"),
        (
            4,
            _set("scaler", {"scale": "0x1.0000000000000p+16", "skipped": False}),
            "exact",
            "scaler-differs",
            "scaler.scale",
        ),
        (
            4,
            _set("scaler", {"scale": "0x1.0000000000000p+16", "skipped": True}),
            "structure",
            "step-skipped",
            "scaler.skipped",
        ),
        (4, _set("loss/0/bits", "nan"), "exact", "non-finite", "loss"),
        (4, _set("grad_norm", "inf"), "exact", "non-finite", "grad_norm"),
        (4, _set("loss/0/dtype", "bfloat16"), "structure", "dtypes-differ", "loss"),
        (4, _set("loss", []), "structure", "events-differ", "loss"),
        (4, _set("inputs/0/0", [3, 4]), "structure", "shapes-differ", "inputs"),
        (4, _set("inputs/0/1", "int32"), "structure", "dtypes-differ", "inputs"),
        (4, _set("inputs", []), "structure", "events-differ", "inputs"),
        (4, _set("grads/head.weight/shape", [5, 1]), "structure", "shapes-differ", "grads"),
        (4, _set("grads/head.weight/dtype", "bfloat16"), "structure", "dtypes-differ", "grads"),
        (4, _set("grads/extra.weight", fp([1.0])), "structure", "tensors-differ", "grads"),
        (4, _set("in_backward", True), "structure", "events-differ", "step.in_backward"),
    ],
)
def test_one_change_in_one_step(
    step: int, edit: Callable[[dict[str, Any]], None], layer: str, kind: str, observable: str
) -> None:
    verdict = judged(change(1, step, edit))
    first = verdict.first_divergence
    assert first is not None
    assert (verdict.outcome, verdict.layer, verdict.kind) == (Outcome.DIVERGED, layer, kind)
    assert (first.step, first.rank, first.observable, first.phase) == (step, 1, observable, "full")
    assert verdict.sentence.startswith(f"Diverged at step {step}, rank 1: ")


def test_sentence_of_a_gradient_says_how_far() -> None:
    verdict = judged(change(1, 3, _grad))
    assert verdict.sentence.startswith(
        "Diverged at step 3, rank 1: the gradient of blocks.1.bias differs first (relative "
    )
    assert verdict.sentence.endswith(", allowed 0).")


def test_one_ulp_of_the_loss_is_counted() -> None:
    first = judged(change(1, 4, _loss_up)).first_divergence
    assert first is not None
    assert (first.ulp_diff, first.allowed) == (1, "0x0.0p+0")


def test_zeros_of_both_signs_differ_in_bits_only() -> None:
    def at(zero: str) -> Trace:
        return change(0, 4, _set("loss/0/bits", zero))

    verdict = compare(at("0x0.0p+0"), at("-0x0.0p+0"), tolerance=BITWISE)
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "loss-differs")
    assert "0 in the target, -0.0 in the candidate (another sign of zero)" in verdict.sentence
    first = verdict.first_divergence
    assert first is not None
    assert (first.abs_diff, first.ulp_diff) == ("0x0.0p+0", 0)
    assert compare(at("0x0.0p+0"), at("-0x0.0p+0"), tolerance=LOOSE).outcome == Outcome.WITHIN_TOLERANCE


@pytest.mark.parametrize("tolerance", [BITWISE, LOOSE])
def test_equal_nan_never_passes(tolerance: ToleranceSpec) -> None:
    both = change(1, 4, _set("loss/0/bits", "nan"))
    verdict = compare(both, both, tolerance=tolerance)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "non-finite")
    assert "a run that is not finite never passes" in verdict.sentence


def test_overflow_that_the_scaler_caught_is_no_failure() -> None:
    def edit(event: dict[str, Any]) -> None:
        event["scaler"] = {"scale": "0x1.0000000000000p+16", "skipped": True}
        for name in ("optimizers", "grads", "grad_norm", "params"):
            event.pop(name, None)

    both = change(1, 4, edit)
    assert compare(both, both, tolerance=BITWISE).outcome == Outcome.BITWISE


@pytest.mark.parametrize(
    ("event", "kind", "layer"),
    [
        ("eval", "evaluation-differs", "bitwise"),
        ("save", "checkpoint-differs", "bitwise"),
        ("end", "end-differs", "bitwise"),
    ],
)
def test_what_comes_after_a_step(event: str, kind: str, layer: str) -> None:
    def edit(ranks: list[Events]) -> None:
        found = next(one for one in ranks[0] if one["ev"] == event)
        if event == "eval":
            found["outputs"][0][2] = "0" * 32
        elif event == "save":
            found["tensors"]["model/head.weight"][2] = "0" * 32
        else:
            found["params"]["head.weight"]["dg"] = "0" * 32

    verdict = judged(edited(BASE, edit))
    assert (verdict.outcome, verdict.kind, verdict.layer) == (Outcome.DIVERGED, kind, layer)


def test_event_on_one_side_only() -> None:
    def edit(ranks: list[Events]) -> None:
        ranks[0].remove(next(event for event in ranks[0] if event["ev"] == "eval"))

    verdict = judged(edited(BASE, edit))
    assert (verdict.outcome, verdict.layer, verdict.kind) == (Outcome.DIVERGED, "structure", "events-differ")
    assert verdict.sentence == (
        "Diverged at step 4, rank 0: what happens is not the same (eval): "
        "eval in the target, absent in the candidate."
    )


def test_order_of_events_inside_a_step_does_not_matter() -> None:
    def edit(ranks: list[Events]) -> None:
        index = next(i for i, event in enumerate(ranks[0]) if event["ev"] == "eval")
        ranks[0][index : index + 2] = ranks[0][index : index + 2][::-1]

    assert judged(edited(BASE, edit)).outcome == Outcome.BITWISE


def test_missing_and_extra_steps() -> None:
    def drop(ranks: list[Events]) -> None:
        ranks[1].remove(step_event(ranks[1], 5))

    verdict = judged(edited(BASE, drop))
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "steps-missing")
    first = verdict.first_divergence
    assert first is not None
    assert (first.step, first.rank, first.target, first.candidate) == (5, 1, "8 steps", "7 steps")
    longer = compare(edited(BASE, drop), trace_of(BASE), tolerance=BITWISE)
    assert (longer.outcome, longer.kind) == (Outcome.DIVERGED, "steps-extra")


def test_crash_before_the_first_step() -> None:
    def crash(ranks: list[Events]) -> None:
        for events in ranks:
            del events[2:]

    for candidate in (None, Trace(phases=()), edited(BASE, crash)):
        verdict = judged(candidate)
        assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "did-not-run")
    verdict = compare(edited(BASE, crash), trace_of(BASE), tolerance=BITWISE)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "target-did-not-run")


def test_other_world_size() -> None:
    verdict = judged(trace_of(replace(BASE, world=1)))
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "world-size-differs")


def test_stale_reference() -> None:
    locks = ("sha256:" + "a" * 64, "sha256:" + "b" * 64)
    verdict = judged(trace_of(BASE), locks=locks)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "reference-stale")
    assert verdict.sentence.endswith("from another lock than the target; no recorded bit differs.")
    verdict = judged(trace_of(replace(BASE, lr=6e-4)), locks=locks)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "reference-stale")
    assert (
        "; at step 1, rank 0, the hyper-parameter lr of optimizer 0 group 0 differs first" in verdict.sentence
    )
    assert verdict.first_divergence is not None
    assert judged(trace_of(BASE), locks=(locks[0], locks[0])).outcome == Outcome.BITWISE


def test_environment_not_covered() -> None:
    environment = Comparability(relation="not-covered", reasons=("another vendor",))
    verdict = judged(trace_of(BASE), environment=environment)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "environment-not-covered")
    assert "another vendor" in verdict.sentence


def test_missing_phase() -> None:
    target = trace_of(BASE, interrupted=replace(BASE, stop_after=4))
    verdict = compare(target, trace_of(BASE), tolerance=BITWISE)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "phases-differ")
    assert compare(target, trace_of(BASE), tolerance=BITWISE, phases=["full"]).outcome == Outcome.BITWISE
    with pytest.raises(CompareError, match="no phase resumed"):
        compare(target, target, tolerance=BITWISE, phases=["resumed"])


def test_another_stack_asks_for_the_across_rule() -> None:
    other = replace(BASE, head={"torch": {"version": "2.8.0", "threads": 1}}, noise=1e-7)
    verdict = judged(trace_of(other))
    assert (verdict.outcome, verdict.kind, verdict.environment) == (
        Outcome.INCOMPARABLE,
        "not-calibrated",
        "across",
    )
    equal = judged(trace_of(replace(other, noise=0.0)))
    assert (equal.outcome, equal.environment) == (Outcome.BITWISE, "across")


def test_torn_last_line_is_a_missing_end() -> None:
    ranks = ranks_of(BASE)
    phase = phase_of(ranks)
    lines = list(phase.ranks[0].lines())
    torn = replace(phase.ranks[0], lines=lambda: iter([*lines[:-1], lines[-1][:20]]))
    verdict = judged(Trace(phases=(replace(phase, ranks=(torn, phase.ranks[1])),)))
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "events-differ")


@pytest.mark.parametrize(
    "line",
    [b"{\n", b'{"ev":"step"}\n', b'{"ev":"step","step":true}\n', b'{"ev":"end","params":3,"step":8}\n'],
)
def test_malformed_lines_are_named(line: bytes) -> None:
    phase = phase_of(ranks_of(BASE))
    lines = list(phase.ranks[0].lines())
    broken = replace(phase.ranks[0], lines=lambda: iter([*lines[:-1], line]))
    with pytest.raises(TraceError) as caught:
        judged(Trace(phases=(replace(phase, ranks=(broken, phase.ranks[1])),)))
    assert caught.value.kind == "trace-malformed"


def test_self_replay() -> None:
    full = phase_of(ranks_of(BASE))
    verdict = self_replay(full, phase_of(ranks_of(replace(BASE, stop_after=4)), name="interrupted"))
    assert (verdict.outcome, verdict.compared.steps) == (Outcome.BITWISE, 4)
    other = self_replay(full, phase_of(ranks_of(replace(BASE, stop_after=4, noise=1e-7)), name="interrupted"))
    assert (other.outcome, other.kind) == (Outcome.DIVERGED, "gradients-differ")
    assert other.sentence.startswith("The run does not repeat itself: at step 1, rank 0, 3 of 3 gradients")


def test_what_the_target_did_not_repeat_is_not_asked_for() -> None:
    def unseeded(text: str, **options: Any) -> list[Events]:
        ranks = ranks_of(replace(BASE, **options))
        for events in ranks:
            for event in events:
                if event["ev"] == "step":
                    event["rng"]["python"] = text * 32
        return ranks

    target = Trace(
        phases=(phase_of(unseeded("a")), phase_of(unseeded("b", stop_after=4), name="interrupted"))
    )
    verdict = compare(target, Trace(phases=(phase_of(unseeded("c")),)), tolerance=BITWISE, phases=["full"])
    assert verdict.outcome == Outcome.BITWISE
    assert verdict.compared.not_enforced == ("rng.python",)
    assert verdict.notes == ("Not asked for, although it differs: rng.python.",)


def test_bits_cannot_be_asked_of_what_does_not_repeat_itself() -> None:
    target = trace_of(BASE, interrupted=replace(BASE, stop_after=4, noise=1e-7, noise_seed=1))
    verdict = compare(
        target, trace_of(replace(BASE, noise=1e-7, noise_seed=2)), tolerance=BITWISE, phases=["full"]
    )
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "not-self-reproducible")
    lr = compare(target, trace_of(replace(BASE, lr=6e-4)), tolerance=BITWISE, phases=["full"])
    assert (lr.outcome, lr.kind) == (Outcome.DIVERGED, "hyper-parameters-differ")


def test_explicit_bounds() -> None:
    near = judged(trace_of(replace(BASE, noise=1e-6)), tolerance=LOOSE)
    assert (near.outcome, near.kind, near.layer) == (Outcome.WITHIN_TOLERANCE, "within-bounds", "bound")
    assert near.first_divergence is not None
    assert near.first_divergence.step == 1
    assert near.growth
    far = judged(trace_of(replace(BASE, noise=1e-2)), tolerance=LOOSE)
    assert (far.outcome, far.layer) == (Outcome.DIVERGED, "bound")
    assert "(difference " in far.sentence
    assert far.first_divergence is not None
    assert far.first_divergence.abs_diff is not None
    assert far.first_divergence.allowed is not None
    assert float.fromhex(far.first_divergence.abs_diff) > float.fromhex(far.first_divergence.allowed)
    lr = judged(trace_of(replace(BASE, lr=3.0000001e-4)), tolerance=LOOSE)
    assert (lr.outcome, lr.kind) == (Outcome.DIVERGED, "hyper-parameters-differ")


def test_explanations_stand_beside_the_verdict() -> None:
    target = {
        "packages": {"torch": "2.9.0", "tqdm": "4.66"},
        "configuration": {"lr": "3e-4"},
        "data": {"corpus": "aa"},
    }
    candidate = {**target, "packages": {"torch": "2.8.0", "tqdm": "4.67"}, "data": {"corpus": "bb"}}
    verdict = judged(change(1, 4, _loss_up), facts=(target, candidate))
    assert [(one.category, one.name) for one in verdict.explanations] == [
        ("packages", "torch"),
        ("packages", "tqdm"),
        ("data", "corpus"),
    ]
    assert verdict.explanations[0].sentence == "packages torch: 2.9.0 in the target, 2.8.0 in the candidate"
    inputs = judged(trace_of(replace(BASE, data_changed_from=4)), facts=(target, candidate))
    assert inputs.explanations[0].category == "data"
    hidden = judged(change(1, 4, _loss_up), facts=(target, target))
    assert hidden.notes == (
        "No recorded input differs: the cause is not recorded, or it is hidden non-determinism.",
    )


@pytest.mark.parametrize("name", ["a\u200bb", "e\u0301", "line\nline", "\x1b[31m", "w" * 500, "naïve"])
def test_odd_names_do_not_break_a_verdict(name: str) -> None:
    def rename(event: dict[str, Any]) -> None:
        event["grads"][name] = fp([1.0])

    verdict = judged(change(1, 3, rename))
    assert verdict.kind == "tensors-differ"
    assert verdict.sentence.isprintable()


def test_long_values_are_cut_in_the_sentence_only() -> None:
    verdict = judged(trace_of(replace(BASE, activation="GELU(" + "x" * 1000 + ")")))
    assert verdict.kind == "modules-differ"
    assert len(verdict.sentence) < 600
    assert verdict.first_divergence is not None
    assert "x" * 1000 in (verdict.first_divergence.candidate or "")


def test_a_second_run_tells_hidden_non_determinism_from_an_unrecorded_cause() -> None:
    first, other = (phase_of(ranks_of(replace(BASE, noise=1e-3, noise_seed=seed))) for seed in (1, 2))
    verdict = compare(trace_of(BASE), Trace(phases=(first,)), tolerance=ToleranceSpec())
    assert verdict.outcome == Outcome.DIVERGED
    assert spread_note(first, first, verdict).startswith("Run once more, the candidate gives the same bits")
    note = spread_note(first, other, verdict)
    assert note.startswith("Hidden non-determinism: run once more, the candidate differs from itself: the ")
    assert "the loss by up to " in note
    assert "(from the target by " in note
    assert "and the weights by up to " in note
