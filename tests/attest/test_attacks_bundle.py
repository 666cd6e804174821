"""Attacks on the bundle and its signature. Numbers are those of the table in `docs/threats.md`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from repro.attest.dsse import pae
from repro.attest.envelope import open_bundle, seal
from repro.bundle import PAYLOAD_TYPE
from repro.cli.verifying import read_trust
from repro.digest import canonical_json
from repro.errors import TrustError
from tests.attest.attest_world import World, new_signer, public_pem

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
BUNDLE = "train.sigstore.json"


def tree_of(world: World, name: str = BUNDLE) -> Any:
    return json.loads((world.run / name).read_bytes())


def put(world: World, tree: Any, name: str = BUNDLE) -> None:
    (world.run / name).write_bytes(canonical_json(tree))


def signature_of(world: World, name: str = BUNDLE) -> bytes:
    return open_bundle((world.run / name).read_bytes(), where="x").signature


def put_signature(world: World, signature: bytes) -> None:
    tree = tree_of(world)
    tree["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    put(world, tree)


def envelope(change: Callable[[Any], object]) -> Callable[[World], None]:
    """An attack that edits the envelope's tree."""

    def attack(world: World) -> None:
        tree = tree_of(world)
        change(tree["dsseEnvelope"])
        put(world, tree)

    return attack


def material(change: Callable[[Any], object]) -> Callable[[World], None]:
    def attack(world: World) -> None:
        tree = tree_of(world)
        change(tree["verificationMaterial"])
        put(world, tree)

    return attack


def whole(change: Callable[[Any], object]) -> Callable[[World], None]:
    def attack(world: World) -> None:
        tree = tree_of(world)
        change(tree)
        put(world, tree)

    return attack


def raw(change: Callable[[bytes], bytes]) -> Callable[[World], None]:
    """An attack on the bundle's bytes."""

    def attack(world: World) -> None:
        path = world.run / BUNDLE
        path.write_bytes(change(path.read_bytes()))

    return attack


def second_signature(world: World) -> None:
    tree = tree_of(world)
    other = world.signers["lab"].sign(pae(PAYLOAD_TYPE, world.payload()))
    tree["dsseEnvelope"]["signatures"].append({"keyid": "", "sig": base64.b64encode(other).decode()})
    put(world, tree)


def edit_payload(world: World) -> None:
    tree = tree_of(world)
    payload = base64.b64decode(tree["dsseEnvelope"]["payload"]).replace(b'"sequence":7', b'"sequence":8')
    tree["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    put(world, tree)


def resigned_type(payload_type: str) -> Callable[[World], None]:
    def attack(world: World) -> None:
        tree = tree_of(world)
        tree["dsseEnvelope"]["payloadType"] = payload_type
        put(world, tree)
        put_signature(world, world.signers["train"].sign(pae(payload_type, world.payload())))

    return attack


def signed_message(message: Callable[[bytes], bytes]) -> Callable[[World], None]:
    def attack(world: World) -> None:
        put_signature(world, world.signers["train"].sign(message(world.payload())))

    return attack


def unknown_key(world: World) -> None:
    (world.run / BUNDLE).unlink()
    world.sign("stranger")


def unknown_key_under_a_trusted_hint(world: World) -> None:
    signature = world.signers["stranger"].sign(pae(PAYLOAD_TYPE, world.payload()))
    hint = world.signers["train"].public.hint
    (world.run / BUNDLE).write_bytes(seal(world.payload(), signature, signer=hint))


def hint_of_another(world: World) -> None:
    material(lambda m: m["publicKey"].update(hint=world.signers["lab"].public.hint))(world)


def keyid_equals_hint(world: World) -> None:
    hint = world.signers["train"].public.hint
    envelope(lambda e: e["signatures"][0].update(keyid=hint))(world)


def sha1_signature(world: World) -> None:
    message = pae(PAYLOAD_TYPE, world.payload())
    put_signature(world, world.signers["train"]._key.sign(message, ec.ECDSA(SHA1())))


def raw_r_s(world: World) -> None:
    r, s = decode_dss_signature(signature_of(world))
    put_signature(world, r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def malleated(world: World) -> None:
    r, s = decode_dss_signature(signature_of(world))
    put_signature(world, encode_dss_signature(r, P256_ORDER - s))


def zero(world: World) -> None:
    put_signature(world, encode_dss_signature(0, 0))


def trailing_der(world: World) -> None:
    put_signature(world, signature_of(world) + b"\0")


def only_lab(world: World, signature: bytes) -> None:
    (world.run / BUNDLE).unlink()
    signed = seal(world.payload(), signature, signer=world.signers["lab"].public.hint)
    (world.run / "lab.sigstore.json").write_bytes(signed)


def ecdsa_under_ed25519(world: World) -> None:
    world.policy["keys"] = [entry for entry in world.policy["keys"] if entry["principal"] == "lab"]
    world.policy["rules"][0]["principals"] = ["lab"]
    only_lab(world, signature_of(world))


def sixty_four_bytes(world: World) -> None:
    only_lab(world, bytes(range(64)))


def ed25519ph(world: World) -> None:
    """RFC 8032: Ed25519ph signs the SHA-512 of the message under a domain prefix; here, a plain prehash."""
    only_lab(world, world.signers["lab"].sign(hashlib.sha512(pae(PAYLOAD_TYPE, world.payload())).digest()))


def base64_of(change: Callable[[str], str], member: str = "payload") -> Callable[[World], None]:
    def edit(tree: Any) -> None:
        holder = tree if member == "payload" else tree["signatures"][0]
        holder[member] = change(holder[member])

    return envelope(edit)


def url_safe(world: World) -> None:
    tree = tree_of(world)
    for holder, member in ((tree["dsseEnvelope"], "payload"), (tree["dsseEnvelope"]["signatures"][0], "sig")):
        holder[member] = holder[member].replace("+", "-").replace("/", "_")
    put(world, tree)


def mixed_alphabets(world: World) -> None:
    tree = tree_of(world)
    tree["dsseEnvelope"]["payload"] = "+-" + tree["dsseEnvelope"]["payload"][2:]
    put(world, tree)


def stray_bits(text: str) -> str:
    """Change bits that decode to nothing: the last character before the padding."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    body = text.rstrip("=")
    return body[:-1] + alphabet[alphabet.index(body[-1]) + 1] + text[len(body) :]


def pad_to_stray(world: World) -> None:
    """Sign again until the signature's base64 ends in padding, so that there are stray bits to set."""
    while not tree_of(world)["dsseEnvelope"]["signatures"][0]["sig"].endswith("="):
        world.sign()
    base64_of(stray_bits, "sig")(world)


def certificate_without_authorities(world: World) -> None:
    tree = tree_of(world)
    tree["verificationMaterial"] = {"certificate": {"rawBytes": "AAAA"}, "tlogEntries": []}
    put(world, tree)


def doubled(member: bytes, forged_first: bool, escaped: bool = False) -> Callable[[World], None]:
    def change(data: bytes) -> bytes:
        forged = base64.b64encode(b"{}")
        name = b"p\\u0061yload" if escaped else member
        genuine = b'"' + member + b'":"'
        if forged_first:
            return data.replace(genuine, b'"' + name + b'":"' + forged + b'",' + genuine, 1)
        return data.replace(b'"payloadType"', b'"' + name + b'":"' + forged + b'","payloadType"', 1)

    return raw(change)


ATTACKS: list[tuple[str, Callable[[World], None], str | None]] = [
    ("01 signatures emptied", envelope(lambda e: e.update(signatures=[])), "E_BUNDLE"),
    ("01 signatures removed", envelope(lambda e: e.pop("signatures")), "E_BUNDLE"),
    ("01 sig empty", envelope(lambda e: e["signatures"][0].update(sig="")), "E_SIG"),
    ("01 sig removed", envelope(lambda e: e["signatures"][0].pop("sig")), "E_BUNDLE"),
    ("02 second valid signature", second_signature, "E_BUNDLE"),
    ("02 same signature twice", envelope(lambda e: e.update(signatures=e["signatures"] * 2)), "E_BUNDLE"),
    ("03 payload edited", edit_payload, "E_SIG"),
    ("04 payload type json, signed", resigned_type("application/json"), "E_TYPE"),
    ("04 payload type case, signed", resigned_type("application/vnd.in-toto+JSON"), "E_TYPE"),
    ("05 payload type swapped", envelope(lambda e: e.update(payloadType="application/json")), "E_TYPE"),
    ("06 no PAE", signed_message(lambda payload: payload), "E_SIG"),
    (
        "06 misspelt PAE",
        signed_message(lambda p: pae(PAYLOAD_TYPE, p).replace(b"DSSEv1", b"DSSEV1")),
        "E_SIG",
    ),
    ("07 unknown key", unknown_key, "E_SIG"),
    ("07 unknown key, trusted hint", unknown_key_under_a_trusted_hint, "E_SIG"),
    ("08 key smuggled in", material(lambda m: m["publicKey"].update(rawBytes="AAAA")), "E_BUNDLE"),
    ("08 algorithm smuggled in", material(lambda m: m["publicKey"].update(keyDetails="none")), "E_BUNDLE"),
    ("09 keyid contradicts hint", envelope(lambda e: e["signatures"][0].update(keyid="x")), "E_BUNDLE"),
    ("10 hint of another key", hint_of_another, None),
    ("10 keyid equals hint", keyid_equals_hint, None),
    ("10 keyid absent", envelope(lambda e: e["signatures"][0].pop("keyid")), None),
    ("10 tlogEntries absent", material(lambda m: m.pop("tlogEntries")), None),
    ("11 ECDSA under an Ed25519 hint", ecdsa_under_ed25519, "E_SIG"),
    ("11 64 arbitrary bytes", sixty_four_bytes, "E_SIG"),
    ("12 SHA-1", sha1_signature, "E_SIG"),
    ("12 raw r and s", raw_r_s, "E_SIG"),
    ("12 r = s = 0", zero, "E_SIG"),
    ("12 trailing byte in DER", trailing_der, "E_SIG"),
    ("13 malleated", malleated, None),
    ("14 Ed25519 over a prehash", ed25519ph, "E_SIG"),
    ("16 base64 truncated", base64_of(lambda text: text[:-5]), "E_B64"),
    ("16 base64 newline", base64_of(lambda text: text[:8] + "\n" + text[8:]), "E_B64"),
    ("16 base64 unpadded", base64_of(lambda text: text[:-1] if text[-1] == "=" else text[:-3]), "E_B64"),
    ("16 base64 mixed alphabets", mixed_alphabets, "E_B64"),
    ("16 base64 stray bits", pad_to_stray, "E_B64"),
    ("17 base64 URL-safe", url_safe, None),
    (
        "18 media type 0.1",
        whole(lambda t: t.update(mediaType="application/vnd.dev.sigstore.bundle+json;version=0.1")),
        "E_BUNDLE",
    ),
    ("18 media type unknown", whole(lambda t: t.update(mediaType="x")), "E_BUNDLE"),
    ("18 media type missing", whole(lambda t: t.pop("mediaType")), "E_BUNDLE"),
    ("18 certificate, keys only", certificate_without_authorities, "E_BUNDLE"),
    ("18 neither key nor certificate", material(lambda m: m.pop("publicKey")), "E_BUNDLE"),
    ("18 both", material(lambda m: m.update(certificate={"rawBytes": "AAAA"})), "E_BUNDLE"),
    ("18 empty hint", material(lambda m: m["publicKey"].update(hint="")), "E_BUNDLE"),
    ("19 unknown member", whole(lambda t: t.update(extra=1)), "E_BUNDLE"),
    ("19 unknown in envelope", envelope(lambda e: e.update(extra=1)), "E_BUNDLE"),
    ("19 unknown in signature", envelope(lambda e: e["signatures"][0].update(extra=1)), "E_BUNDLE"),
    ("19 unknown in material", material(lambda m: m.update(x509CertificateChain={})), "E_BUNDLE"),
    ("19 log entries", material(lambda m: m.update(tlogEntries=[{}])), "E_BUNDLE"),
    ("19 snake case", whole(lambda t: t.update(media_type=t.pop("mediaType"))), "E_BUNDLE"),
    ("19 snake case inside", envelope(lambda e: e.update(payload_type=e.pop("payloadType"))), "E_BUNDLE"),
    ("19 messageSignature beside", whole(lambda t: t.update(messageSignature={})), "E_BUNDLE"),
    ("20 payload doubled, forged first", doubled(b"payload", True), "E_JSON"),
    ("20 payload doubled, forged last", doubled(b"payload", False), "E_JSON"),
    ("20 payload doubled by escape", doubled(b"payload", False, escaped=True), "E_JSON"),
    ("21 trailing data", raw(lambda data: data + b"{}"), "E_JSON"),
    ("21 byte order mark", raw(lambda data: b"\xef\xbb\xbf" + data), "E_JSON"),
    ("21 UTF-16", raw(lambda data: data.decode().encode("utf-16")), "E_JSON"),
    ("21 truncated", raw(lambda data: data[:-9]), "E_JSON"),
    ("21 empty", raw(lambda data: b""), "E_JSON"),
    ("21 null", raw(lambda data: b"null"), "E_BUNDLE"),
    ("21 list", raw(lambda data: b"[]"), "E_BUNDLE"),
    ("22 deep", raw(lambda data: b"[" * 100_000), "E_JSON"),
    ("22 large", raw(lambda data: data + b" " * (9 << 20)), "E_SIZE"),
]


@pytest.mark.parametrize(("attack", "code"), [(a, c) for _, a, c in ATTACKS], ids=[n for n, _, _ in ATTACKS])
def test_bundle_attack(world: World, attack: Callable[[World], None], code: str | None) -> None:
    before = world.verify().payload_digest
    attack(world)
    got = world.verify()
    assert got.code == code
    assert (got.verdict == "VERIFIED") == (code is None)
    if code is None:
        assert got.payload_digest == before
    else:
        assert got.manifest is None
        assert any(check.state == "failed" and check.code == code for check in got.checks)


def test_04_the_reason_names_the_type_escaped(world: World) -> None:
    resigned_type("x\u00e9")(world)
    assert "'x\\xe9'" in world.verify().signatures[0].reason


def test_14_an_ed25519_failure_names_cosign(world: World) -> None:
    ed25519ph(world)
    assert "Ed25519ph" in world.verify().signatures[0].reason


def test_14_other_failures_do_not(world: World) -> None:
    unknown_key(world)
    assert "Ed25519ph" not in world.verify().signatures[0].reason


def other_keys() -> list[tuple[str, Any]]:
    curves: list[Any] = [ec.SECP224R1(), ec.SECP384R1(), ec.SECP521R1(), ec.SECP256K1()]
    keys = [(f"ECDSA {curve.name}", ec.generate_private_key(curve)) for curve in curves]
    return [("RSA-2048", rsa.generate_private_key(65537, 2048)), *keys]


def test_15_other_kinds_of_keys_are_refused_by_name(world: World) -> None:
    world.write_policy()
    for name, key in other_keys():
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (world.trust / "keys" / "train.pub").write_bytes(pem)
        with pytest.raises(TrustError, match=name) as caught:
            read_trust(world.trust / "trust.yaml")
        assert caught.value.kind == "E_KEY"


@pytest.mark.parametrize(
    ("pem", "says"),
    [
        (
            ed25519.Ed25519PrivateKey.generate().private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            ),
            "private",
        ),
        (b"", "not one PEM"),
        (public_pem(new_signer()) * 2, "not one PEM"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be read"),
    ],
    ids=["private", "empty", "two", "garbage"],
)
def test_15_what_is_no_public_key(world: World, pem: bytes, says: str) -> None:
    world.write_policy()
    (world.trust / "keys" / "train.pub").write_bytes(pem)
    with pytest.raises(TrustError, match=says) as caught:
        read_trust(world.trust / "trust.yaml")
    assert caught.value.kind == "E_KEY"


def test_59_a_junk_bundle_blocks_nothing(world: World) -> None:
    (world.run / "aaa.sigstore.json").write_bytes(b"\xff\x00junk")
    (world.run / "zzz.sigstore.json").mkdir()
    world.sign("stranger")
    got = world.verify()
    assert got.verdict == "VERIFIED"
    assert [signature.state for signature in got.signatures] == ["ignored", "ignored", "counts"]
    assert "aaa.sigstore.json ignored" in got.checks[1].detail


def test_49_a_signature_of_another_image_signs_nothing_here(world: World) -> None:
    other = world.statement()
    other["subject"][-1]["digest"]["sha256"] = "0" * 64
    world.sign_tree(other)
    assert world.verify().code == "E_IMAGE"


@pytest.mark.parametrize(("folder", "check"), [("", "signatures"), ("replays/", "replays")])
def test_22_more_bundles_than_are_read(world: World, folder: str, check: str) -> None:
    for number in range(65):
        path = world.run / f"{folder}{number}.sigstore.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}")
    got = world.verify()
    assert got.code == "E_SIZE"
    assert next(found.name for found in got.checks if found.code) == check


def test_no_bundle_at_all(world: World) -> None:
    (world.run / BUNDLE).unlink()
    got = world.verify()
    assert (got.verdict, got.code) == ("REJECTED", "E_BUNDLE")


def test_the_time_of_day_is_taken_from_the_caller(world: World) -> None:
    assert world.verify(now=datetime(2027, 1, 1, tzinfo=UTC)).code == "E_KEY"
