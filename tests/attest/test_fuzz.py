"""Whatever arrives, a verdict or a named error comes out: no traceback, in bounded time.

REPRO_FUZZ_EXAMPLES sets how many examples each test tries.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from repro.adapters.cosignkey import open_cosign_key
from repro.attest.certificate import certified_signer
from repro.attest.envelope import OpenedBundle, seal
from repro.attest.keyring import Trust
from repro.attest.publickey import load_public_key
from repro.attest.verify import verify
from repro.cli.verifying import read_trust
from repro.digest import canonical_json
from repro.errors import ReproError, SpecError, TrustError
from repro.strictjson import loads
from repro.trust import parse_policy
from tests.attest.attest_memory import MemoryFolder
from tests.attest.attest_world import NOW, World

EXAMPLES = int(os.environ.get("REPRO_FUZZ_EXAMPLES", "150"))
fuzz = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

TEXT = st.text(max_size=12) | st.sampled_from(
    [
        "\ud800",
        "\x00",
        "\u202e",
        "e\u0301",
        "sha256:" + "0" * 64,
        "manifest.json",
        "../x",
        "https://in-toto.io/Statement/v1",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, MemoryFolder, Trust]:
    world = World(tmp_path_factory.mktemp("fuzz"))
    world.demand_replay()
    world.sign()
    world.replay()
    return world, MemoryFolder.of(world.run), read_trust(world.write_policy())


SEALED = b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n%s\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
LINES = st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace"))


def dumps(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a tree."""
    found = [path]
    members = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in members:
        found += places(value, (*path, key))
    return found


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


def settled(folder: MemoryFolder, trust: Trust) -> None:
    got = verify(folder, trust, now=NOW)
    assert (got.verdict == "VERIFIED") == (got.manifest is not None)
    assert (got.verdict == "REJECTED") == (got.code is not None)
    assert [check.number for check in got.checks] == list(range(1, len(got.checks) + 1))
    json.dumps(got.tree())


NAMES = st.sampled_from(
    ["train.sigstore.json", "replays/auditor.sigstore.json", "manifest.json", "repro.lock"]
)


@fuzz
@given(name=NAMES, data=st.binary(max_size=200) | TREES.map(dumps))
@example(name="train.sigstore.json", data=b"[" * 100_000)
def test_any_file(signed: Any, name: str, data: bytes) -> None:
    _, folder, trust = signed
    settled(folder.with_file(name, data), trust)


@fuzz
@given(data=st.data(), value=TREES)
def test_any_member_of_a_bundle(signed: Any, data: st.DataObject, value: Any) -> None:
    _, folder, trust = signed
    tree = json.loads(folder.files["train.sigstore.json"])
    path = data.draw(st.sampled_from(places(tree)))
    settled(folder.with_file("train.sigstore.json", dumps(replaced(tree, path, value))), trust)


@fuzz
@given(data=st.data(), value=TREES)
def test_any_member_of_a_signed_statement(signed: Any, data: st.DataObject, value: Any) -> None:
    world, folder, trust = signed
    tree = world.statement()
    path = data.draw(st.sampled_from(places(tree)))
    payload = dumps(replaced(tree, path, value))
    bundle = seal(payload, world.signers["train"].sign(_pae(payload)), signer="hint")
    settled(folder.with_file("train.sigstore.json", bundle), trust)


def _pae(payload: bytes) -> bytes:
    return OpenedBundle(payload=payload, signature=b"", hint=None, certificate=None, tokens=()).message


@fuzz
@given(data=st.data(), value=TREES)
def test_any_member_of_a_signed_manifest(signed: Any, data: st.DataObject, value: Any) -> None:
    """A trusted signer may sign nonsense; the statement then names the manifest that is there."""
    world, folder, trust = signed
    tree = json.loads(folder.files["manifest.json"])
    path = data.draw(st.sampled_from(places(tree)))
    manifest = dumps(replaced(tree, path, value))
    statement = world.statement()
    statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(manifest).hexdigest()
    statement["predicate"]["files"][0]["size"] = len(manifest)
    payload = canonical_json(statement)
    bundle = seal(payload, world.signers["train"].sign(_pae(payload)), signer="hint")
    settled(folder.with_file("manifest.json", manifest).with_file("train.sigstore.json", bundle), trust)


@fuzz
@given(
    TREES.map(dumps)
    | st.binary(max_size=80)
    | st.text(max_size=80).map(lambda t: t.encode("utf-8", "replace"))
)
def test_any_policy(data: bytes) -> None:
    error: Exception | None = None
    try:
        parse_policy(data, where="trust.yaml")
    except SpecError as caught:
        error = caught
    assert error is not None


@fuzz
@given(st.binary(max_size=120) | TREES.map(dumps))
def test_strict_json_keeps_its_word(data: bytes) -> None:
    try:
        value = loads(data, where="x")
    except TrustError as error:
        assert error.kind.startswith("E_")  # noqa: PT017
    else:
        assert loads(canonical_json(value), where="x") == value


@fuzz
@given(st.binary(max_size=200))
def test_any_key_file(data: bytes) -> None:
    body = base64.b64encode(data)
    for pem in (
        data,
        b"-----BEGIN PUBLIC KEY-----\n" + body + b"\n-----END PUBLIC KEY-----\n",
        b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
        + body
        + b"\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n",
    ):
        for read in (lambda p: load_public_key(p, where="x"), lambda p: open_cosign_key(p, b"x", where="x")):
            with pytest.raises(TrustError):
                read(pem)


@fuzz
@given(certificate=st.binary(max_size=200))
def test_any_certificate(signed: Any, certificate: bytes) -> None:
    _, _, trust = signed
    opened = OpenedBundle(payload=b"", signature=b"x", hint=None, certificate=certificate, tokens=())
    with pytest.raises(ReproError):
        certified_signer(opened, trust, NOW, where="x")
