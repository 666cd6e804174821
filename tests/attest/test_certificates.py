"""Signers known by a certificate of a private authority, and time stamps."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from repro.adapters.keys import FileSigner
from repro.attest.envelope import open_bundle, seal
from repro.attest.outcome import Verification
from repro.attest.publickey import public_key
from repro.attest.sign import sign
from tests.attest.attest_authority import DAY, SAN, Authority, TimeAuthority, clock, pem, uris
from tests.attest.attest_world import World

BUNDLE = "train.sigstore.json"


class Lab:
    """A world whose only signers are known by certificates."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.authority = Authority()
        self.time = TimeAuthority(root / "tsa", self.authority, end=3000 * DAY, start=-3000 * DAY)
        self.world.write_run(created_at=f"{clock() - 10 * DAY:%Y-%m-%dT%H:%M:%SZ}")
        policy = self.world.policy
        del policy["expires"]
        policy["keys"] = []
        policy["rules"][0]["principals"] = ["train"]
        policy["cas"] = [
            {
                "name": "lab",
                "roots": ["keys/root.pem"],
                "intermediates": ["keys/issuing.pem"],
                "identities": [{"san": SAN, "principal": "train"}],
            }
        ]
        policy["tsas"] = [{"name": "lab-tsa", "certificate": "keys/tsa.pem", "root": "keys/root.pem"}]
        (self.world.trust / "keys").mkdir(parents=True)
        for name, certificate in (
            ("root", self.authority.root),
            ("issuing", self.authority.inner),
            ("tsa", self.time.certificate),
        ):
            (self.world.trust / "keys" / f"{name}.pem").write_bytes(pem(certificate))

    def sign(self, signer: FileSigner, time: TimeAuthority | None = None) -> None:
        bundle = sign(self.world.payload(), signer, timestamper=time)
        (self.world.run / BUNDLE).write_bytes(bundle)

    def put_token(self, signer: FileSigner, token: bytes) -> None:
        """A bundle with a token that was made elsewhere."""
        opened = open_bundle((self.world.run / BUNDLE).read_bytes(), where="x")
        assert signer.certificate is not None
        bundle = seal(opened.payload, opened.signature, signer=signer.certificate, tokens=(token,))
        (self.world.run / BUNDLE).write_bytes(bundle)

    def verify(self, later: timedelta = timedelta(0), **demands: Any) -> Verification:
        return self.world.verify(now=clock() + later, **demands)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def reason(got: Verification) -> str:
    return got.signatures[0].reason


def test_a_certified_signer(lab: Lab) -> None:
    lab.sign(lab.authority.signer())
    got = lab.verify()
    assert got.verdict == "VERIFIED", got.checks
    assert got.principals == ("train",)
    assert (got.signatures[0].method, got.signatures[0].time) == ("certificate", "now")


def test_a_leaf_straight_from_the_root(lab: Lab) -> None:
    lab.sign(lab.authority.signer(by_root=True))
    assert lab.verify().verdict == "VERIFIED"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"names": uris("https://lab.example/team/other")}, "does not know the name"),
        ({"names": uris(SAN + "/more")}, "does not know the name"),
        ({"names": uris("https://lab.example/team/*")}, "does not know the name"),
        ({"names": uris(SAN, "https://lab.example/second")}, "exactly one name"),
        ({"names": uris(SAN, SAN)}, "exactly one name"),
        ({"names": x509.SubjectAlternativeName([x509.DNSName("lab.example")])}, "does not know the name"),
        ({"usages": (ExtendedKeyUsageOID.SERVER_AUTH,)}, "code signing"),
        ({"usages": (ExtendedKeyUsageOID.TIME_STAMPING,)}, "code signing"),
        ({"usages": (ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.SERVER_AUTH)}, "code signing"),
        ({"usages": (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)}, "code signing"),
        ({"usages": ()}, "lab did not issue"),
        ({"ca": True}, "an authority's"),
        ({"may_sign": False}, "for signatures alone"),
    ],
)
def test_66_leaves_that_are_not_for_this(lab: Lab, options: dict[str, Any], says: str) -> None:
    lab.sign(lab.authority.signer(**options))
    got = lab.verify()
    assert (got.verdict, got.code) == ("REJECTED", "E_CERT")
    assert says in reason(got)


def test_66_a_certificate_for_a_key_of_another_kind(lab: Lab) -> None:
    certificate, key = lab.authority.leaf(key=ec.generate_private_key(ec.SECP384R1()))
    signature = key.sign(b"", ec.ECDSA(SHA256()))
    bundle = seal(lab.world.payload(), signature, signer=certificate.public_bytes(Encoding.DER))
    (lab.world.run / BUNDLE).write_bytes(bundle)
    got = lab.verify()
    assert got.code == "E_CERT"
    assert "secp384r1" in reason(got)


def test_66_another_authority(lab: Lab) -> None:
    lab.sign(Authority().signer())
    got = lab.verify()
    assert got.code == "E_CERT"
    assert "did not issue" in reason(got)


@pytest.mark.parametrize("which", ["root", "inner"])
def test_66_an_authority_as_a_leaf(lab: Lab, which: str) -> None:
    key = lab.authority.root_key if which == "root" else lab.authority.inner_key
    certificate = getattr(lab.authority, which).public_bytes(Encoding.DER)
    lab.sign(FileSigner(key, public_key(key.public_key(), where="x"), certificate))
    assert lab.verify().code == "E_CERT"


def test_66_a_certificate_with_bytes_after_it(lab: Lab) -> None:
    signer = lab.authority.signer()
    assert signer.certificate is not None
    signer.certificate += b"\0"
    lab.sign(signer)
    assert lab.verify().code == "E_CERT"


def test_another_keys_certificate(lab: Lab) -> None:
    signer = lab.authority.signer()
    signer.certificate = lab.authority.signer().certificate
    lab.sign(signer)
    assert lab.verify().code == "E_SIG"


def test_65_an_expired_leaf_needs_a_token_from_its_lifetime(lab: Lab) -> None:
    signer = lab.authority.signer()
    lab.sign(signer)
    assert lab.verify(later=3 * DAY).code == "E_TIME"
    lab.sign(signer, lab.time)
    got = lab.verify(later=3 * DAY)
    assert got.verdict == "VERIFIED", got.checks
    assert (got.signatures[0].time or "").startswith("lab-tsa 20")


def test_65_a_token_from_after_the_leafs_life(lab: Lab) -> None:
    lab.sign(lab.authority.signer(start=-9 * DAY, end=-DAY), lab.time)
    assert lab.verify().code == "E_TIME"


def test_65_a_token_for_another_signature(lab: Lab) -> None:
    signer = lab.authority.signer()
    lab.sign(signer, lab.time)
    lab.put_token(signer, lab.time.stamp(b"something else"))
    assert lab.verify(later=3 * DAY).code == "E_TIME"


def test_65_a_token_of_another_time_authority(lab: Lab, tmp_path: Path) -> None:
    other = TimeAuthority(tmp_path / "other", Authority("Other"))
    lab.sign(lab.authority.signer(), other)
    assert lab.verify(later=3 * DAY).code == "E_TIME"


def test_65_a_second_time_authority_under_the_same_root(lab: Lab, tmp_path: Path) -> None:
    other = TimeAuthority(tmp_path / "other", lab.authority)
    lab.sign(lab.authority.signer(), other)
    assert lab.verify(later=3 * DAY).code == "E_TIME"


def test_65_a_token_from_before_the_time_authority_was_good(lab: Lab, tmp_path: Path) -> None:
    early = TimeAuthority(tmp_path / "early", lab.authority, start=-9 * DAY, end=-DAY)
    (lab.world.trust / "keys/tsa.pem").write_bytes(pem(early.certificate))
    lab.sign(lab.authority.signer(), early)
    assert lab.verify(later=3 * DAY).code == "E_TIME"


def test_65_an_edited_token(lab: Lab) -> None:
    signer = lab.authority.signer()
    lab.sign(signer, lab.time)
    token = open_bundle((lab.world.run / BUNDLE).read_bytes(), where="x").tokens[0]
    place = token.index(b"\x18\x0f20") + 2
    year = bytes([*token[: place + 3], token[place + 3] ^ 1, *token[place + 4 :]])
    for broken in (year, token + b"\0", token[:-1], b"", b"\x30\x00"):
        lab.put_token(signer, broken or b"\0")
        assert lab.verify(later=3 * DAY).code == "E_TIME"
    lab.put_token(signer, token)
    assert lab.verify(later=3 * DAY).verdict == "VERIFIED"


def test_71_without_the_package_the_answer_is_incomplete(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.sign(lab.authority.signer(), lab.time)
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    got = lab.verify(later=3 * DAY)
    assert (got.verdict, got.code, got.manifest) == ("INCOMPLETE", None, None)
    assert "repro-manifest[tsa]" in reason(got)
    assert lab.verify().verdict == "VERIFIED"


def test_71_a_package_that_would_decide_nothing_is_not_missed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.sign(lab.authority.signer(), lab.time)
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    del lab.world.policy["tsas"]
    assert lab.verify(later=3 * DAY).code == "E_TIME"


def second_signer(lab: Lab) -> None:
    """A signer known by a key that is good, beside the one whose certificate has expired."""
    entry = lab.world.entry("train", principal="other")
    del entry["notAfter"]
    lab.world.policy["keys"] = [entry]
    lab.world.sign("train", bundle="other.sigstore.json")


def test_71_a_signature_that_cannot_be_judged_leaves_the_threshold_open(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.sign(lab.authority.signer(), lab.time)
    second_signer(lab)
    rule = lab.world.policy["rules"][0]
    rule |= {"principals": ["train", "other"], "threshold": 2}
    assert lab.verify(later=3 * DAY).verdict == "VERIFIED"
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    got = lab.verify(later=3 * DAY)
    assert (got.verdict, got.code) == ("INCOMPLETE", None)
    assert got.checks[2].state == "not-made"
    rule["threshold"] = 1
    assert lab.verify(later=3 * DAY).verdict == "VERIFIED"


def test_71_a_replay_that_cannot_be_judged_may_be_a_veto(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    second_signer(lab)
    lab.world.policy["rules"][0]["principals"] = ["other"]
    lab.world.policy["keys"].append({**lab.world.entry("auditor"), "notAfter": "2090-01-01T00:00:00Z"})
    lab.world.demand_replay(1, ("auditor", "train"))
    yesterday = f"{clock() - DAY:%Y-%m-%dT%H:%M:%SZ}"
    place = lab.world.replay("auditor", started_at=yesterday, time_created=yesterday)
    assert lab.verify(later=3 * DAY).verdict == "VERIFIED"
    payload = open_bundle(place.read_bytes(), where="x").payload
    bundle = sign(payload, lab.authority.signer(), timestamper=lab.time)
    (place.parent / "train.sigstore.json").write_bytes(bundle)
    assert lab.verify(later=3 * DAY).verdict == "VERIFIED"
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    got = lab.verify(later=3 * DAY)
    assert (got.verdict, got.code) == ("INCOMPLETE", None)


def test_54_keys_and_time_stamps(lab: Lab) -> None:
    """Expired, retired and revoked keys count where a token is from when they were good."""
    world = lab.world
    moment = {
        "notBefore": f"{clock() - DAY:%Y-%m-%dT%H:%M:%SZ}",
        "notAfter": f"{clock() + DAY:%Y-%m-%dT%H:%M:%SZ}",
    }
    entry = world.entry("train", **moment)
    world.policy["keys"] = [entry]
    bundle = sign(world.payload(), world.signers["train"], timestamper=lab.time)
    (world.run / BUNDLE).write_bytes(bundle)
    assert lab.verify(later=9 * DAY).verdict == "VERIFIED"
    entry["status"] = "retired"
    assert lab.verify().verdict == "VERIFIED"
    entry |= {"status": "revoked", "revokedFrom": f"{clock() + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"}
    assert lab.verify().verdict == "VERIFIED"
    entry["revokedFrom"] = f"{clock() - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    assert lab.verify().code == "E_KEY"
    entry |= {"status": "active", "notAfter": f"{clock() - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"}
    del entry["revokedFrom"]
    got = lab.verify()
    assert got.code == "E_KEY"
    assert "no trusted time stamp is from when it was good" in reason(got)


def test_the_age_of_a_run_is_proved_by_its_token(lab: Lab) -> None:
    lab.sign(lab.authority.signer(start=-9 * DAY, end=DAY), lab.time)
    assert lab.verify(max_age=5 * DAY, later=DAY * 3).verdict == "VERIFIED"
    assert lab.verify(max_age=2 * DAY, later=DAY * 3).code == "E_TIME"


def test_the_policys_own_certificates_must_be_readable(lab: Lab) -> None:
    lab.sign(lab.authority.signer())
    (lab.world.trust / "keys/issuing.pem").write_bytes(b"junk")
    assert lab.verify().code == "E_TRUST"
