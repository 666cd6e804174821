"""Two parties who know nothing of each other replay a run and sign what they found; a policy asks both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.e2e_world import Signed, replace_once, repro, succeed

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.torch, pytest.mark.slow]


def verified(run: Path, trust: Path) -> dict[str, Any]:
    result = repro("verify", run, "--trust", trust, "--json")
    answer: dict[str, Any] = json.loads(result.stdout)
    assert result.returncode == {"VERIFIED": 0, "REJECTED": 3, "INCOMPLETE": 4}[answer["verdict"]]
    return answer


def test_two_independent_replayers_and_one_who_fails(signed: Signed, tmp_path: Path) -> None:
    run, trust = tmp_path / "run", tmp_path / "policy" / "trust.yaml"
    shutil.copytree(signed.run, run)
    shutil.copytree(signed.trust.parent, trust.parent, ignore=shutil.ignore_patterns("pilot", "runs"))
    for lab in ("berlin", "kyoto"):
        succeed("keys", "new", trust.parent / "keys" / lab, "--no-passphrase")
        public = trust.parent / "keys" / f"{lab}.pub"
        succeed("keys", "trust", trust, public, "--principal", lab, "--for", "replay")
    policy = trust.read_text()
    rule = policy[policy.index("replay/v1") :]
    trust.write_text(policy.replace(rule, rule.replace("threshold: 1", "threshold: 2", 1)))
    assert verified(run, trust)["verdict"] != "VERIFIED", "nobody ran it again yet"

    def replay(lab: str, project: Path, *options: str) -> str:
        key = trust.parent / "keys" / f"{lab}.key"
        where: list[str | Path] = ["replay", run, "--trust", trust, "-C", project]
        outcome: str = json.loads(repro(*where, "--sign", "--key", key, "--json", *options).stdout)[
            "verdict"
        ]["outcome"]
        return outcome

    assert replay("berlin", signed.project) == "BITWISE"
    assert verified(run, trust)["verdict"] != "VERIFIED", "one is not two"
    assert replay("kyoto", signed.project) == "BITWISE"
    answer = verified(run, trust)
    assert answer["verdict"] == "VERIFIED", answer
    (check,) = (one for one in answer["checks"] if one["name"] == "replays")
    assert check["state"] == "passed"

    changed = signed.copy(tmp_path / "changed")
    replace_once(changed / "configs" / "pilot.yaml", "  lr: 0.0006", "  lr: 0.0007")
    succeed("lock", "-C", changed)
    assert replay("kyoto", changed, "--current") == "DIVERGED"
    answer = verified(run, trust)
    assert (answer["verdict"], answer["code"]) == ("REJECTED", "E_REPLAYED"), "a failed replay is a veto"
