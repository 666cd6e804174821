"""Attacks on what is signed: correctly signed statements that must not be believed; and on the policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from repro.cli.verifying import read_trust
from repro.digest import canonical_json, digest_bytes
from repro.errors import SpecError, TrustError
from tests.attest.attest_world import World


def tree(change: Callable[[Any], object]) -> Callable[[World], None]:
    """An attack by a trusted signer who signs an edited statement."""

    def attack(world: World) -> None:
        statement = world.statement()
        change(statement)
        world.sign_tree(statement)

    return attack


def text(old: str, new: str) -> Callable[[World], None]:
    """The same on the payload's bytes, for what a tree cannot hold."""

    def attack(world: World) -> None:
        payload = world.payload()
        assert old.encode() in payload
        world.sign("train", payload.replace(old.encode(), new.encode("utf-8", "surrogatepass"), 1))

    return attack


def rename(new: str, old: str = "locks/pylock.cpu.toml") -> Callable[[World], None]:
    """Rename a file in the subjects and in the predicate."""

    def change(statement: Any) -> None:
        for entry in (*statement["subject"], *statement["predicate"]["files"]):
            if entry["name"] == old:
                entry["name"] = new

    return tree(change)


def many_subjects(statement: Any) -> None:
    entry = {"digest": {"sha256": "0" * 64}}
    statement["subject"] += [{"name": f"f{number}", **entry} for number in range(2000)]


def twin_subject(name: str) -> Callable[[World], None]:
    return tree(lambda s: s["subject"].append({**s["subject"][0], "name": name}))


def digest(change: Callable[[str], Any]) -> Callable[[World], None]:
    return tree(lambda s: s["subject"][0].update(digest=change(s["subject"][0]["digest"]["sha256"])))


def predicate(**members: Any) -> Callable[[World], None]:
    return tree(lambda statement: statement["predicate"].update(members))


def kind(predicate_type: str) -> Callable[[World], None]:
    return tree(lambda statement: statement.update(predicateType=predicate_type))


def media(place: int, of: str) -> Callable[[World], None]:
    media_type = f"application/vnd.oci.image.{of}.v1+json"
    return tree(lambda statement: statement["subject"][place].update(mediaType=media_type))


def list_twice(statement: Any) -> None:
    statement["predicate"]["files"].append(statement["predicate"]["files"][1])


def drop_file(statement: Any) -> None:
    statement["predicate"]["files"].pop(1)


def drop_subject(statement: Any) -> None:
    statement["subject"].pop(1)


def no_manifest(statement: Any) -> None:
    statement["subject"].pop(0)
    statement["predicate"]["files"].pop(0)


STATEMENTS: list[tuple[str, Callable[[World], None], str]] = [
    ("23 type v0.1", tree(lambda s: s.update(_type="https://in-toto.io/Statement/v0.1")), "E_STMT"),
    ("23 type v2", tree(lambda s: s.update(_type="https://in-toto.io/Statement/v2")), "E_STMT"),
    ("23 no subjects", tree(lambda s: s.pop("subject")), "E_STMT"),
    ("23 empty subjects", tree(lambda s: s.update(subject=[])), "E_STMT"),
    ("23 2,000 subjects", tree(many_subjects), "E_STMT"),
    ("24 SLSA", kind("https://slsa.dev/provenance/v1"), "E_STMT"),
    ("24 replay as run", kind("https://repro-manifest/replay/v1"), "E_STMT"),
    ("24 trailing slash", kind("https://repro-manifest/run/v1/"), "E_STMT"),
    ("25 subject twice", text('"subject":[', '"subject":[],"subject":['), "E_JSON"),
    ("25 type twice", text('"predicateType"', '"predicateType":"x","predicateType"'), "E_JSON"),
    ("26 NaN", text('"sequence":7', '"sequence":NaN'), "E_JSON"),
    ("26 Infinity", text('"sequence":7', '"sequence":-Infinity'), "E_JSON"),
    ("26 1e400", text('"sequence":7', '"sequence":1e400'), "E_JSON"),
    ("26 7.0", text('"sequence":7', '"sequence":7.0'), "E_JSON"),
    ("26 -0", text('"sequence":7', '"sequence":-0'), "E_JSON"),
    ("26 2^53+1", text('"sequence":7', '"sequence":9007199254740993'), "E_JSON"),
    ("26 5,000 digits", text('"sequence":7', '"sequence":' + "9" * 5000), "E_JSON"),
    ("26 true", predicate(sequence=True), "E_STMT"),
    ("27 lone surrogate", text('"project":"pilot"', '"project":"\\ud800"'), "E_TEXT"),
    ("27 lone surrogate in bytes", text('"project":"pilot"', '"project":"\ud800"'), "E_JSON"),
    ("27 NUL", text('"project":"pilot"', '"project":"pi\\u0000lot"'), "E_TEXT"),
    ("27 bidi", text('"project":"pilot"', '"project":"pi\u202elot"'), "E_TEXT"),
    ("27 zero width", text('"project":"pilot"', '"project":"pi\u200blot"'), "E_TEXT"),
    ("27 NFD", text('"project":"pilot"', '"project":"pi\u0301lot"'), "E_TEXT"),
    ("28 look-alike", rename("locks/pyl\u043eck.cpu.toml"), "E_PATH"),
    ("29 upper case", digest(lambda d: {"sha256": d.upper()}), "E_STMT"),
    ("29 SHA-1 only", digest(lambda d: {"sha1": d[:40]}), "E_STMT"),
    ("29 MD5 beside", digest(lambda d: {"sha256": d, "md5": d[:32]}), "E_STMT"),
    ("29 prefix", digest(lambda d: {"sha256": "sha256:" + d}), "E_STMT"),
    ("29 short", digest(lambda d: {"sha256": d[:-1]}), "E_STMT"),
    ("29 newline", digest(lambda d: {"sha256": d + "\n"}), "E_STMT"),
    ("30 one name twice", twin_subject("manifest.json"), "E_STMT"),
    ("30 case folding", twin_subject("MANIFEST.json"), "E_STMT"),
    ("31 Subject", tree(lambda s: s.update(Subject=s.pop("subject"))), "E_STMT"),
    ("31 unknown member", tree(lambda s: s.update(extra=1)), "E_STMT"),
    ("31 unknown in predicate", predicate(extra=1), "E_STMT"),
    ("31 snake case", tree(lambda s: s["predicate"].update(run_id=s["predicate"].pop("runId"))), "E_STMT"),
    ("32 subject not listed", tree(drop_file), "E_SUBJECT"),
    ("32 file without subject", tree(drop_subject), "E_SUBJECT"),
    ("32 image without subject", tree(lambda s: s["subject"].pop()), "E_SUBJECT"),
    ("32 listed twice", tree(list_twice), "E_SUBJECT"),
    ("35 manifest no subject", tree(no_manifest), "E_SUBJECT"),
    ("38 up", rename("../pylock.cpu.toml"), "E_PATH"),
    ("38 up inside", rename("locks/../pylock.cpu.toml"), "E_PATH"),
    ("38 absolute", rename("/etc/passwd"), "E_PATH"),
    ("38 here", rename("./locks/pylock.cpu.toml"), "E_PATH"),
    ("38 double slash", rename("locks//pylock.cpu.toml"), "E_PATH"),
    ("38 backslash", rename("locks\\pylock.cpu.toml"), "E_PATH"),
    ("38 drive", rename("C:locks"), "E_PATH"),
    ("38 device", rename("locks/NUL.txt"), "E_PATH"),
    ("38 device COM1", rename("com1"), "E_PATH"),
    ("38 trailing dot", rename("locks/pylock."), "E_PATH"),
    ("38 leading dash", rename("-rf"), "E_PATH"),
    ("38 leading space", rename(" locks"), "E_PATH"),
    ("38 leading dot", rename(".netrc"), "E_PATH"),
    ("38 tilde", rename("~root"), "E_PATH"),
    ("38 stream", rename("locks/pylock:stream"), "E_PATH"),
    ("38 600 characters", rename("x" * 600), "E_PATH"),
    ("38 trailing slash", rename("locks/"), "E_PATH"),
    ("47 other image", tree(lambda s: s["subject"][-1]["digest"].update(sha256="0" * 64)), "E_IMAGE"),
    ("47 no image", tree(lambda s: (s["subject"].pop(), s["predicate"].update(image=None))), "E_IMAGE"),
    ("46 tag for digest", tree(lambda s: s["subject"][-1]["digest"].update(sha256="latest")), "E_STMT"),
    ("46 index", media(-1, "index"), "E_STMT"),
    ("46 file as image", media(0, "manifest"), "E_SUBJECT"),
    ("61 impossible", predicate(createdAt="2026-02-30T00:00:00Z"), "E_TIME"),
    ("61 short form", predicate(createdAt="2026-11-30T1:2:3Z"), "E_TIME"),
    ("61 other form", predicate(createdAt="2026-11-30 10:00:00+00:00"), "E_TIME"),
    ("61 past, not the manifest's", predicate(createdAt="2026-11-30T09:00:00Z"), "E_MANIFEST"),
    ("other project than the manifest's", predicate(project="other"), "E_MANIFEST"),
    ("other sequence than the manifest's", predicate(sequence=8), "E_MANIFEST"),
    ("size", tree(lambda s: s["predicate"]["files"][0].update(size=1)), "E_SUBJECT"),
    ("role", tree(lambda s: s["predicate"]["files"][3].update(role="other")), "E_MANIFEST"),
    ("input without digest", tree(lambda s: s["predicate"]["inputs"][0].update(digest={})), "E_STMT"),
    ("input", tree(lambda s: s["predicate"]["inputs"].pop()), "E_MANIFEST"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("attack", "code"), [(a, c) for _, a, c in STATEMENTS], ids=[name for name, _, _ in STATEMENTS]
)
def test_statement_attack(world: World, attack: Callable[[World], None], code: str) -> None:
    attack(world)
    got = world.verify()
    assert (got.verdict, got.code) == ("REJECTED", code), [c.detail for c in got.checks if c.code]
    assert got.manifest is None
    if code == "E_PATH":
        assert next(check.name for check in got.checks if check.code) == "statement"


def test_69_what_is_printed_is_escaped(world: World) -> None:
    rename("locks/\u043e\u200d.txt")(world)
    world_text(world.verify())
    predicate(createdAt="\t2026")(world)
    world_text(world.verify())
    tree(lambda s: s["subject"].append({**s["subject"][0], "name": "tab\there"}))(world)
    world_text(world.verify())


def world_text(got: Any) -> None:
    for check in got.checks:
        assert check.detail.isascii()
        assert check.detail.isprintable()


# ---- principals, thresholds, policy ----


def two_of_two(world: World) -> None:
    world.policy["rules"][0]["threshold"] = 2


def test_threshold_of_two_principals(world: World) -> None:
    two_of_two(world)
    assert world.verify().code == "E_THRESHOLD"
    world.sign("lab")
    got = world.verify()
    assert got.verdict == "VERIFIED"
    assert got.principals == ("lab", "train")


def test_53_expired_and_early_keys(world: World) -> None:
    world.policy["keys"][0]["notAfter"] = "2026-12-01T00:00:00Z"
    assert world.verify().code == "E_KEY"
    world.policy["keys"][0] |= {"notAfter": "2027-01-01T00:00:00Z", "notBefore": "2026-12-02T00:00:00Z"}
    got = world.verify()
    assert got.code == "E_KEY"
    assert "not valid before" in got.signatures[0].reason


def test_a_key_without_dates_counts_until_it_is_taken_away(world: World) -> None:
    del world.policy["keys"][0]["notBefore"], world.policy["keys"][0]["notAfter"], world.policy["expires"]
    assert world.verify(now=datetime(2090, 1, 1, tzinfo=UTC)).verdict == "VERIFIED"


@pytest.mark.parametrize("status", ["retired", "revoked"])
def test_54_retired_and_revoked_keys(world: World, status: str) -> None:
    world.policy["keys"][0]["status"] = status
    if status == "revoked":
        world.policy["keys"][0]["revokedFrom"] = "2026-11-30T12:00:00Z"
    got = world.verify()
    assert got.code == "E_KEY"
    assert status in got.signatures[0].reason


def test_55_a_principal_without_a_rule(world: World) -> None:
    (world.run / "train.sigstore.json").unlink()
    world.sign("auditor")
    assert world.verify().code == "E_KEY"


def test_56_thresholds_count_principals_not_bundles(world: World) -> None:
    two_of_two(world)
    world.sign("train", bundle="again.sigstore.json")
    assert world.verify().code == "E_THRESHOLD"
    world.sign("stranger")
    assert world.verify().code == "E_THRESHOLD"


def test_56_different_payloads_do_not_add_up(world: World) -> None:
    two_of_two(world)
    world.sign("lab", world.payload() + b"\n")
    got = world.verify()
    assert got.code == "E_THRESHOLD"
    assert "1 of 2" in got.checks[2].detail


def test_57_two_keys_of_one_principal(world: World) -> None:
    two_of_two(world)
    world.policy["keys"][1]["principal"] = "train"
    world.policy["keys"][2]["principal"] = "lab"
    world.sign("lab")
    assert world.verify().code == "E_THRESHOLD"


def test_58_two_statements_about_one_run(world: World) -> None:
    world.sign("lab", world.payload() + b"\n")
    got = world.verify()
    assert got.code == "E_THRESHOLD"
    assert "two different statements" in got.checks[2].detail


def test_58_a_statement_about_another_run_does_not_block(world: World) -> None:
    other = world.statement()
    other["predicate"]["runId"] = "another"
    other["subject"][0]["digest"]["sha256"] = "0" * 64
    world.sign("lab", canonical_json(other))
    assert world.verify().verdict == "VERIFIED"


def test_60_old_runs_other_projects_and_revoked_payloads(world: World) -> None:
    world.policy["minSequence"] = {"pilot": 8}
    assert world.verify().code == "E_REPLAY"
    world.policy["minSequence"] = {"pilot": 7, "other": 99}
    assert world.verify().verdict == "VERIFIED"
    assert world.verify(project="other").code == "E_REPLAY"
    assert world.verify(run_id="other").code == "E_REPLAY"
    assert world.verify(project="pilot", run_id="00112233445566778899aabbccddeeff").verdict == "VERIFIED"
    world.policy["revokedPayloads"] = [digest_bytes(world.payload())]
    assert world.verify().code == "E_REVOKED"


def test_61_a_run_made_in_the_future_is_warned_of_or_refused_as_the_policy_says(world: World) -> None:
    world.write_run(created_at="2026-12-02T00:00:00Z")
    world.sign()
    got = world.verify()
    assert got.verdict == "VERIFIED"
    assert got.warnings == ("signed-in-the-future: the run is said to be made at 2026-12-02T00:00:00Z",)
    world.policy["futureTimes"] = "refuse"
    assert (world.verify().verdict, world.verify().code) == ("REJECTED", "E_TIME")


def test_61_times_within_the_manifest_are_claims_and_only_warn(world: World) -> None:
    phase = world.manifest_tree()["phases"][0]
    world.write_run(phases=[{**phase, "started_at": "2031-01-01T00:00:00Z"}])
    world.sign()
    got = world.verify()
    assert got.verdict == "VERIFIED"
    assert got.warnings == ("signed-in-the-future: phase full is said to start at 2031-01-01T00:00:00Z",)
    world.write_run(phases=[{**phase, "started_at": "yesterday"}])
    world.sign()
    assert world.verify().code == "E_TIME"


def test_a_small_difference_of_clocks_is_no_future(world: World) -> None:
    world.write_run(created_at="2026-12-01T12:04:00Z")
    world.sign()
    assert world.verify().verdict == "VERIFIED"


def test_max_age_needs_a_time_stamp(world: World) -> None:
    from datetime import timedelta

    got = world.verify(max_age=timedelta(days=9))
    assert (got.verdict, got.code) == ("INCOMPLETE", None)
    assert got.manifest is None


def refused(world: World) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read_trust(world.write_policy())
    return caught.value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p["rules"][0].update(threshold=0), "greater than or equal to 1"),
        (lambda p: p["rules"][0].update(threshold=True), "valid integer"),
        (lambda p: p["rules"][0].update(threshold=3), "cannot be reached"),
        (lambda p: p["rules"][0].update(threshold="1"), "valid integer"),
        (lambda p: p["rules"].append(p["rules"][0]), "two rules"),
        (lambda p: p.update(rules=[]), "at least one"),
        (lambda p: p["rules"][0].update(principals=["train", "train"]), "stands twice"),
        (lambda p: p["rules"][0].update(principals=["nobody"]), "no key"),
        (lambda p: p["rules"][0].update(predicateType="https://slsa.dev/provenance/v1"), "should be"),
        (lambda p: p["keys"].append(p["keys"][0]), "a key stands twice"),
        (lambda p: p["keys"][0].update(status="revoked"), "revokedFrom"),
        (lambda p: p["keys"][0].update(notAfter="2025-01-01T00:00:00Z"), "notBefore"),
        (lambda p: p["keys"][0].update(notAfter="2026-02-30T00:00:00Z"), "day"),
        (lambda p: p["keys"][0].update(file="../train.pub"), "below the folder"),
        (lambda p: p["keys"][0].update(file="/etc/train.pub"), "below the folder"),
        (lambda p: p["keys"][0].update(not_before="2025-01-01T00:00:00Z"), "did you mean 'notBefore'"),
        (lambda p: p.update(schema="https://repro-manifest/trust/v2"), "should be"),
        (lambda p: p.update(version=0), "greater than or equal"),
        (lambda p: p.update(root={"threshold": 1}), "the key 'keys' is missing"),
        (lambda p: p.update(roots={"threshold": 1}), "unknown key 'roots'"),
    ],
)
def test_62_a_policy_that_makes_no_sense(world: World, change: Callable[[Any], object], says: str) -> None:
    change(world.policy)
    error = refused(world)
    assert error.kind == "E_TRUST"
    assert any(says in flaw.message for flaw in error.flaws), error.flaws


def test_41_to_45_a_policy_that_is_no_strict_yaml(world: World) -> None:
    path = world.write_policy()
    for line in (
        "a: &x 1",
        "a: *x",
        "<<: {}",
        "a: !!str 1",
        "version: 1\nversion: 2",
        "a: 1 # \u202e",
        "--- 1\n--- 2",
    ):
        path.write_text(line + "\n")
        with pytest.raises(SpecError) as caught:
            read_trust(path)
        assert caught.value.kind == "E_YAML"
        assert all(flaw.line for flaw in caught.value.flaws)


def test_62_an_expired_policy(world: World) -> None:
    world.policy["expires"] = "2026-12-01T11:59:59Z"
    got = world.verify()
    assert (got.verdict, got.code, got.checks[0].state) == ("REJECTED", "E_TRUST", "failed")
    assert all(check.state == "not-made" for check in got.checks[1:])


def test_62_a_key_under_another_fingerprint(world: World) -> None:
    world.policy["keys"][0]["fingerprint"] = "sha256:" + "0" * 64
    with pytest.raises(TrustError) as caught:
        world.verify()
    assert caught.value.kind == "E_TRUST"


def test_62_no_rule_about_runs(world: World) -> None:
    world.demand_replay()
    del world.policy["rules"][0]
    assert world.verify().code == "E_TRUST"


def test_64_what_the_run_folder_says_of_trust_is_not_read(world: World) -> None:
    (world.run / "train.sigstore.json").unlink()
    world.sign("stranger")
    world.policy["keys"].append(world.entry("stranger"))
    world.policy["rules"][0]["principals"].append("stranger")
    (world.run / "trust.yaml").write_bytes(world.write_policy().read_bytes())
    world.policy["keys"].pop()
    world.policy["rules"][0]["principals"].pop()
    got = world.verify()
    assert got.code == "E_SIG"


def test_70_the_environment_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.verify().tree()
    for name in (
        "REPRO_TRUST",
        "COSIGN_PASSWORD",
        "COSIGN_EXPERIMENTAL",
        "SIGSTORE_ROOT_FILE",
        "REPRO_PASSPHRASE",
    ):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.chdir("/")
    assert json.dumps(world.verify().tree(), sort_keys=True) == json.dumps(before, sort_keys=True)
