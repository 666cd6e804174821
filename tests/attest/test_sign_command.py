"""Keys, certificates and time stamps as a person uses them: by the command line alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from repro.cli import cli
from repro.errors import TrustError
from tests.attest.attest_authority import DAY, Authority, pem
from tests.attest.attest_world import World
from tests.attest.test_certificates import BUNDLE, Lab
from tests.attest.test_timestamper import Service, answer_of, service

__all__ = ["service"]


def repro(*arguments: object, **environment: str) -> Any:
    result = CliRunner().invoke(cli, [str(one) for one in arguments], standalone_mode=False, env=environment)
    if result.exception:
        raise result.exception
    return result


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def leaf_files(lab: Lab, folder: Path) -> tuple[Path, Path]:
    certificate, key = lab.authority.leaf()
    files = folder / "leaf.key", folder / "leaf.pem"
    files[0].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    files[1].write_bytes(pem(certificate))
    return files


def test_a_certificate_and_a_time_stamp(lab: Lab, service: Service, tmp_path: Path) -> None:
    service.answer = answer_of(lab.time)
    key, certificate = leaf_files(lab, tmp_path)
    options = ("--key", key, "--principal", "train", "--certificate", certificate)
    said = repro("sign", lab.world.run, *options, "--tsa", service.url)
    assert "secret" not in said.output
    got = lab.verify()
    assert (got.verdict, got.signatures[0].method, got.principals) == ("VERIFIED", "certificate", ("train",))
    later = lab.verify(later=3 * DAY)
    assert later.verdict == "VERIFIED"
    assert later.signatures[0].time is not None
    assert later.signatures[0].time.startswith("lab-tsa ")
    repro("sign", lab.world.run, *options)
    assert (lab.verify().verdict, lab.verify(later=3 * DAY).code) == ("VERIFIED", "E_TIME")


def test_another_keys_certificate_signs_nothing(lab: Lab, tmp_path: Path) -> None:
    key, _ = leaf_files(lab, tmp_path)
    other = tmp_path / "other.pem"
    other.write_bytes(pem(Authority().leaf()[0]))
    with pytest.raises(TrustError, match="for another key"):
        repro("sign", lab.world.run, "--key", key, "--certificate", other)
    assert not (lab.world.run / BUNDLE).exists()


def _in_environment(folder: Path) -> dict[str, str]:
    return {"REPRO_PASSPHRASE": "correct horse"}


def _filed(folder: Path) -> dict[str, str]:
    (folder / "passphrase").write_text("correct horse\n")
    return {}


@pytest.mark.parametrize("kind", ["ecdsa-p256", "ed25519"])
@pytest.mark.parametrize("how", [_in_environment, _filed], ids=["environment", "file"])
def test_from_a_new_key_to_a_verified_run(
    world: World, tmp_path: Path, kind: str, how: Callable[[Path], dict[str, str]]
) -> None:
    (world.run / BUNDLE).unlink()
    environment = how(tmp_path)
    passphrase = () if environment else ("--passphrase-file", tmp_path / "passphrase")
    key, trust = tmp_path / "keys" / "lab", tmp_path / "own" / "trust.yaml"
    trust.parent.mkdir()
    made = repro("keys", "new", key, "--kind", kind, *passphrase, **environment)
    assert b"ENCRYPTED PRIVATE KEY" in key.with_suffix(".key").read_bytes()
    shown = json.loads(repro("keys", "show", key.with_suffix(".pub"), "--json").output)
    assert shown["fingerprint"] in made.output
    trusted = repro("keys", "trust", trust, key.with_suffix(".pub"), "--principal", "lab")
    assert shown["fingerprint"] in trusted.output
    trust.write_text("# mine\n" + trust.read_text())
    repro("keys", "trust", trust, key.with_suffix(".pub"), "--principal", "lab", "--for", "replay")
    assert trust.read_text().startswith("# mine\n")
    exported = tmp_path / "cosign.key"
    repro("keys", "export", key.with_suffix(".key"), exported, *passphrase, **environment)
    for private in (key.with_suffix(".key"), exported):
        repro("sign", world.run, "--key", private, "--principal", "lab", *passphrase, **environment)
        answer = repro("verify", world.run, "--trust", trust, "--json")
        checks = {check["name"]: check["state"] for check in json.loads(answer.output)["checks"]}
        assert checks.pop("replays") == "failed"
        assert "failed" not in checks.values()
        (world.run / "lab.sigstore.json").unlink()


def test_a_passphrase_is_no_argument() -> None:
    for command in ("new", "show", "export"):
        assert "--passphrase " not in repro("keys", command, "--help").output
    for command in ("sign", "capture", "replay"):
        assert "--passphrase " not in repro(command, "--help").output


def test_the_statement_is_printed_and_nothing_is_signed(world: World) -> None:
    (world.run / BUNDLE).unlink()
    result = repro("sign", world.run, "--statement-only")
    assert result.stdout_bytes == world.payload()
    assert not list(world.run.glob("*.sigstore.json"))
