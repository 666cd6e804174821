"""Signed replays, and what a policy makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repro.attest.envelope import open_bundle
from repro.digest import digest_bytes
from repro.statement import Mismatch, ReplayEnvironment, parse_replay_statement
from tests.attest.attest_world import World, comparison

MISMATCH = comparison().model_copy(update={"first_mismatch": Mismatch(step=1, rank=0, what="loss")})


def environment(*deviations: str) -> ReplayEnvironment:
    return ReplayEnvironment(
        gpu="gfx942", driver="6.16.6", rocm="7.1.0", cuda=None, image_digest=None, deviations=deviations
    )


def detail(world: World, **demands: Any) -> str:
    got = world.verify(**demands)
    assert (got.verdict, got.code) == ("REJECTED", "E_REPLAYED")
    return got.checks[-1].detail


def test_a_replay_that_is_demanded_must_be_there(world: World) -> None:
    world.demand_replay()
    assert "0 of 1 independent principals" in detail(world)
    got = world.verify(replays=False)
    assert got.verdict == "VERIFIED"
    assert (got.checks[-1].state, got.checks[-1].wanted) == ("not-made", False)
    world.replay()
    got = world.verify()
    assert got.verdict == "VERIFIED"
    assert got.checks[-1].detail == "auditor replayed the run with success"


def test_without_a_rule_replays_are_left_unread_and_that_is_said(world: World) -> None:
    world.replay(result="FAILED")
    got = world.verify()
    assert got.verdict == "VERIFIED"
    assert "1 lie in the folder, unread" in got.checks[-1].detail


def test_two_independent_parties(world: World) -> None:
    world.demand_replay(2, ("auditor", "lab"))
    world.replay("auditor")
    world.replay("auditor", bundle="replays/again.sigstore.json")
    assert "1 of 2" in detail(world)
    world.replay("lab")
    assert world.verify().verdict == "VERIFIED"


def test_67_a_signer_of_the_run_is_not_independent(world: World) -> None:
    world.demand_replay(1, ("auditor", "train"))
    world.replay("train")
    assert "signed the run, so is not independent" in detail(world)
    world.demand_replay(1, ("auditor", "train"), independentOfRunSigners=False)
    assert world.verify().verdict == "VERIFIED"


def test_67_any_signer_of_the_run_not_only_those_needed(world: World) -> None:
    world.demand_replay(1, ("lab",))
    world.sign("lab")
    world.replay("lab")
    assert "not independent" in detail(world)


def test_67_a_failed_replay_vetoes(world: World) -> None:
    world.demand_replay(1, ("auditor", "lab"))
    world.replay("auditor")
    world.replay("lab", result="FAILED", comparison=comparison(2, 1))
    assert "lab replayed the run, and it failed" in detail(world)
    world.policy["rules"][1]["principals"] = ["auditor"]
    assert world.verify().verdict == "VERIFIED"


def test_67_a_failed_replay_of_ones_own_run_vetoes_too(world: World) -> None:
    world.demand_replay(1, ("auditor", "train"))
    world.replay("auditor")
    world.replay("train", result="FAILED")
    assert "train replayed the run, and it failed" in detail(world)


def test_67_about_another_payload(world: World) -> None:
    world.demand_replay()
    world.replay(payload=world.payload() + b"\n")
    assert "about another run" in detail(world)


def test_67_about_another_run_even_when_failed_is_no_veto(world: World) -> None:
    world.demand_replay(1, ("auditor", "lab"))
    world.replay("auditor")
    world.replay("lab", payload=world.payload() + b"\n", result="FAILED")
    assert world.verify().verdict == "VERIFIED"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"comparison": comparison(1, 1)}, "1 steps compared and 1 matched, of 2 recorded"),
        ({"comparison": comparison(2, 1)}, "2 steps compared and 1 matched"),
        ({"comparison": comparison(0, 0)}, "0 steps compared"),
        ({"comparison": comparison(3, 3)}, "3 steps compared"),
        ({"result": "INCOMPLETE"}, "its result is INCOMPLETE"),
        ({"environment": environment("another driver")}, "which the rule does not allow"),
        ({"time_created": "2026-11-30T16:00:00Z"}, "it ended before it started"),
        ({"time_created": "2027-11-30T16:00:00Z"}, "in the future"),
        ({"started_at": "yesterday"}, "times cannot be read"),
        (
            {
                "comparison": comparison().model_copy(
                    update={"first_mismatch": Mismatch(step=1, rank=0, what="loss")}
                )
            },
            "names a mismatch",
        ),
    ],
)
def test_67_what_does_not_count_as_success(world: World, changes: dict[str, Any], says: str) -> None:
    world.demand_replay()
    world.replay(**changes)
    assert says in detail(world)


def test_deviations_that_the_rule_allows(world: World) -> None:
    world.demand_replay(1, ("auditor",), allowedDeviations=["another driver"])
    world.replay(environment=environment("another driver"))
    assert world.verify().verdict == "VERIFIED"


def test_67_a_verdict_is_no_run_and_a_run_no_verdict(world: World) -> None:
    world.demand_replay()
    world.sign("auditor", bundle="replays/auditor.sigstore.json")
    got = world.verify()
    assert (got.code, got.replays[0].signature.code) == ("E_REPLAYED", "E_STMT")
    world.replay("auditor", bundle="train.sigstore.json")
    assert world.verify().code == "E_STMT"


def test_an_unknown_replayer_counts_for_nothing(world: World) -> None:
    world.demand_replay()
    world.replay("stranger")
    assert "no trusted key" in detail(world)


def test_a_replay_behind_a_link_is_not_read(world: World, tmp_path: Path) -> None:
    world.demand_replay()
    place = world.replay()
    place.rename(tmp_path / "aside")
    place.symlink_to(tmp_path / "aside")
    assert "symbolic link" in detail(world)


def test_the_statement_says_whose_run_it_is_about(world: World) -> None:
    opened = open_bundle(world.replay().read_bytes(), where="replay")
    statement = parse_replay_statement(opened.payload, where="replay")
    assert [subject.name for subject in statement.subject] == [
        "run.statement.json",
        "manifest.json",
        "pilot:cpu",
    ]
    assert f"sha256:{statement.subject[0].digest.sha256}" == digest_bytes(world.payload())
    assert statement.subject[0].digest == statement.predicate.run.payload_digest
