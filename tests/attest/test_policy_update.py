"""Attack 63: a policy is replaced by a newer one that old and new root keys signed, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from repro.cli import cli
from repro.errors import ReproError, SpecError, TrustError
from tests.attest.attest_world import World


class Office:
    """A reader's policy with two root keys, both of which must sign, and a newer one with another pair."""

    def __init__(self, root: Path) -> None:
        self.old, self.new = World(root / "old"), World(root / "new")
        self.new.signers = self.old.signers
        for world, version, holders in (
            (self.old, 3, ("train", "lab")),
            (self.new, 4, ("lab", "auditor")),
        ):
            keys = [world.entry(name, notBefore=None, notAfter=None) for name in ("train", "lab", "auditor")]
            roots = [self.old.signers[name].fingerprint for name in holders]
            world.policy |= {"version": version, "expires": None, "keys": keys}
            world.policy["root"] = {"threshold": 2, "keys": roots}
        self.root = root

    def endorse(self, *names: str) -> None:
        for name in names:
            signer = self.old.signers[name]
            key = self.root / f"{name}.key"
            pem = signer._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            key.write_bytes(pem)
            run("keys", "endorse", self.new.write_policy(), "--key", key)

    def update(self) -> str:
        return run("keys", "update", self.old.write_policy(), self.new.write_policy())


def run(*arguments: object) -> str:
    result = CliRunner().invoke(cli, [str(one) for one in arguments], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_63_old_and_new_roots_replace_a_policy(office: Office) -> None:
    office.endorse("train", "lab", "auditor")
    said = office.update()
    assert "version 4, signed by auditor, lab, train" in said
    for name in ("train", "lab", "auditor"):
        assert office.old.signers[name].fingerprint in said
    old, new = (world.trust / "trust.yaml" for world in (office.old, office.new))
    assert old.read_bytes() == new.read_bytes()


@pytest.mark.parametrize(
    ("signers", "says"),
    [
        ((), "0 of 2 root principals of the old policy"),
        (("lab",), "1 of 2 root principals of the old policy"),
        (("lab", "auditor"), "1 of 2 root principals of the old policy"),
        (("train", "lab"), "1 of 2 root principals of the new policy"),
        (("train", "lab", "stranger"), "1 of 2 root principals of the new policy"),
    ],
)
def test_63_signed_by_too_few(office: Office, signers: tuple[str, ...], says: str) -> None:
    office.endorse(*signers)
    before = office.old.write_policy().read_bytes()
    with pytest.raises(TrustError, match=says):
        office.update()
    assert (office.old.trust / "trust.yaml").read_bytes() == before


def change(key: str, value: Any) -> Callable[[Office], None]:
    return lambda office: office.new.policy.update({key: value})


def revoke(office: Office) -> None:
    office.old.policy["keys"][0] |= {"status": "revoked", "revokedFrom": "2026-01-01T00:00:00Z"}


def expire_key(office: Office) -> None:
    office.old.policy["keys"][0] |= {"notAfter": "2026-02-01T00:00:00Z"}


def early_key(office: Office) -> None:
    office.old.policy["keys"][0] |= {"notBefore": "2099-02-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        (change("version", 3), "does not come after 3"),
        (change("version", 2), "does not come after 3"),
        (change("expires", "2026-01-01T00:00:00Z"), "expired"),
        (change("root", None), "new policy names no root keys"),
        (lambda office: office.old.policy.pop("root"), "old policy names no root keys"),
        (revoke, "1 of 2 root principals of the old"),
        (expire_key, "1 of 2 root principals of the old"),
        (early_key, "1 of 2 root principals of the old"),
    ],
    ids=["same", "older", "expired", "new rootless", "old rootless", "revoked", "key expired", "key early"],
)
def test_63_an_older_or_weaker_policy(office: Office, attack: Callable[[Office], None], says: str) -> None:
    attack(office)
    office.endorse("train", "lab", "auditor")
    with pytest.raises(TrustError, match=says) as caught:
        office.update()
    assert caught.value.kind == "E_TRUST"


def test_63_edited_after_it_was_signed(office: Office) -> None:
    office.endorse("train", "lab", "auditor")
    office.new.policy["minSequence"] = {"pilot": 0}
    (office.new.trust / "trust.yaml.junk.sigstore.json").write_bytes(b"{")
    with pytest.raises(TrustError, match="0 of 2"):
        office.update()


def test_62_a_root_that_makes_no_sense(office: Office) -> None:
    for root in (
        {"threshold": 3, "keys": office.new.policy["root"]["keys"]},
        {"threshold": 0, "keys": office.new.policy["root"]["keys"]},
        {"threshold": 1, "keys": [office.old.signers["stranger"].fingerprint]},
    ):
        office.new.policy["root"] = root
        with pytest.raises(SpecError):
            office.update()


def test_a_file_of_another_key_is_not_overwritten(office: Office) -> None:
    office.endorse("train", "lab", "auditor")
    office.new.policy["cas"] = [
        {
            "name": "lab",
            "roots": ["cas/root.pem"],
            "identities": [{"san": "https://lab.example", "principal": "lab"}],
        }
    ]
    for world, data in ((office.old, b"other"), (office.new, b"new")):
        (world.trust / "cas").mkdir(parents=True, exist_ok=True)
        (world.trust / "cas" / "root.pem").write_bytes(data)
    office.endorse("train", "lab", "auditor")
    with pytest.raises(ReproError, match="another file lies"):
        office.update()
