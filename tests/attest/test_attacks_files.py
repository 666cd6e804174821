"""Attacks on the files of a signed run folder."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro.adapters.runfolder import DiskRunFolder
from repro.digest import digest_bytes, pretty_json
from repro.errors import EngineError, TrustError
from repro.image import ImageIdentity
from repro.lock import ArtifactLock, FileLock
from tests.attest.attest_world import IMAGE_IDENTITY, SPEC, World, make_trace

LOCK = "repro.lock"
TRACE = "trace/full/rank-0.jsonl"
REQUIREMENTS = "locks/requirements.cpu.txt"


def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[World], None]:
    def attack(world: World) -> None:
        path = world.run / name
        path.write_bytes(change(path.read_bytes()))

    return attack


def other_seed(data: bytes) -> bytes:
    assert b'"seed": 7' in data
    return data.replace(b'"seed": 7', b'"seed": 8')


def exchange(world: World) -> None:
    first, second = world.run / REQUIREMENTS, world.run / "locks/pylock.cpu.toml"
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)


def linked(name: str) -> Callable[[World], None]:
    """Replace a file, or a folder, by a symbolic link to its equal."""

    def attack(world: World) -> None:
        path = world.run / name
        aside = world.run.parent / "aside"
        path.rename(aside)
        path.symlink_to(aside)

    return attack


def hard_link(world: World) -> None:
    os.link(world.run / LOCK, world.run.parent / "other-name")


def fifo(world: World) -> None:
    (world.run / LOCK).unlink()
    os.mkfifo(world.run / LOCK)


def folder(world: World) -> None:
    (world.run / LOCK).unlink()
    (world.run / LOCK).mkdir()


def unix_socket(world: World) -> None:
    (world.run / LOCK).unlink()
    here = Path.cwd()
    os.chdir(world.run)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(LOCK)
    finally:
        os.chdir(here)


def device(world: World) -> None:
    (world.run / LOCK).unlink()
    (world.run / LOCK).symlink_to("/dev/zero")


FILES: list[tuple[str, Callable[[World], None], str]] = [
    ("33 manifest value edited", edit("manifest.json", other_seed), "E_SUBJECT"),
    ("33 lock value edited", edit(LOCK, other_seed), "E_SUBJECT"),
    ("33 trace value edited", edit(TRACE, lambda d: d.replace(b"0x1.8p+0", b"0x1.9p+0")), "E_SUBJECT"),
    ("33 byte appended to the manifest", edit("manifest.json", lambda d: d + b"\n"), "E_SUBJECT"),
    ("33 byte appended to a trace", edit(TRACE, lambda d: d + b"\n"), "E_SUBJECT"),
    ("33 CRLF", edit(REQUIREMENTS, lambda d: d.replace(b"\n", b"\r\n")), "E_SUBJECT"),
    ("33 emptied", edit(LOCK, lambda d: b""), "E_SUBJECT"),
    ("33 spec comment", edit("repro.yaml", lambda d: d + b"# more\n"), "E_SUBJECT"),
    ("34 exchanged", exchange, "E_SUBJECT"),
    ("35 lock missing", lambda world: (world.run / LOCK).unlink(), "E_PATH"),
    ("35 manifest missing", lambda world: (world.run / "manifest.json").unlink(), "E_PATH"),
    ("35 trace missing", lambda world: (world.run / TRACE).unlink(), "E_PATH"),
    ("36 file is a link", linked(LOCK), "E_PATH"),
    ("36 manifest is a link", linked("manifest.json"), "E_PATH"),
    ("36 folder is a link", linked("locks"), "E_PATH"),
    ("36 outer folder is a link", linked("trace"), "E_PATH"),
    ("36 link to a device", device, "E_PATH"),
    ("37 hard link", hard_link, "E_PATH"),
    ("37 named pipe", fifo, "E_PATH"),
    ("37 folder", folder, "E_PATH"),
    ("37 socket", unix_socket, "E_PATH"),
    ("size", edit("manifest.json", lambda d: d + b" " * (9 << 20)), "E_SIZE"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("attack", "code"), [(a, c) for _, a, c in FILES], ids=[name for name, _, _ in FILES]
)
def test_file_attack(world: World, attack: Callable[[World], None], code: str) -> None:
    attack(world)
    got = world.verify()
    assert (got.verdict, got.code) == ("REJECTED", code), [c.detail for c in got.checks if c.code]
    assert got.manifest is None


def test_36_a_link_is_named_with_its_target(world: World) -> None:
    linked(LOCK)(world)
    failed = next(check for check in world.verify().checks if check.code)
    assert f"is a symbolic link to {str(world.run.parent / 'aside')!a}" in failed.detail
    assert failed.detail.startswith("repro.lock: ")


def test_40_a_folder_with_nothing_unsigned_is_strict_already(world: World) -> None:
    assert world.verify(strict=True).verdict == "VERIFIED"


def test_40_unsigned_files_are_listed_and_refused_where_that_is_asked(world: World) -> None:
    (world.run / "notes.txt").write_text("hello")
    (world.run / ".venv").mkdir()
    (world.run / ".venv/python").symlink_to("/usr/bin/env")
    (world.run / ".venv/lib").symlink_to("/")
    got = world.verify()
    assert got.verdict == "VERIFIED"
    assert got.unsigned == (".venv/lib", ".venv/python", "notes.txt")
    strict = world.verify(strict=True)
    assert (strict.verdict, strict.code) == ("REJECTED", "E_SUBJECT")
    assert strict.unsigned == got.unsigned


def resigned(world: World, name: str, data: bytes, **changes: Any) -> None:
    """Change a file and let the trusted signer sign the manifest that follows."""
    world.files[name] = data
    (world.run / name).write_bytes(data)
    manifest = pretty_json(world.manifest_tree(**changes))
    (world.run / "manifest.json").write_bytes(manifest)
    world.sign()


def lock_with(world: World, **changes: Any) -> bytes:
    return pretty_json({**json.loads(world.files[LOCK]), **changes})


def test_the_lock_must_belong_to_the_spec(world: World) -> None:
    resigned(world, "repro.yaml", SPEC.replace(b"steps: 2", b"steps: 3"))
    assert world.verify().code == "E_LOCK"
    resigned(world, "repro.yaml", SPEC.replace(b"# a pilot", b"# another comment"))
    assert world.verify().verdict == "VERIFIED"
    resigned(world, "repro.yaml", SPEC.replace(b"base:1", b"base:2"))
    assert world.verify().code == "E_LOCK"
    resigned(world, "repro.yaml", SPEC.replace(b"  cpu:", b"  cuda:"))
    assert world.verify().code == "E_LOCK"
    resigned(world, "repro.yaml", b"a: &x 1\n")
    assert world.verify().code == "E_LOCK"


@pytest.mark.parametrize(
    "changes", [{"seed": 8}, {"determinism": "off"}, {"datasets": []}, {"accelerators": {}}, {"unknown": 1}]
)
def test_the_run_must_belong_to_the_lock(world: World, changes: dict[str, Any]) -> None:
    resigned(world, LOCK, lock_with(world, **changes))
    assert world.verify().code == "E_LOCK"


@pytest.mark.parametrize("changes", [{"diff_ids": [digest_bytes(b"other")]}, {"architecture": "arm64"}])
def test_51_the_image_must_stand_on_the_locked_base(world: World, changes: dict[str, Any]) -> None:
    accelerators = json.loads(world.files[LOCK])["accelerators"]
    accelerators["cpu"]["base"] |= {"diff_ids": [digest_bytes(b"layer")]}
    resigned(world, LOCK, lock_with(world, accelerators=accelerators))
    assert world.verify().verdict == "VERIFIED"
    accelerators["cpu"]["base"] |= changes
    resigned(world, LOCK, lock_with(world, accelerators=accelerators))
    assert world.verify().code == "E_IMAGE"


def test_package_files_must_be_those_the_lock_names(world: World) -> None:
    resigned(world, REQUIREMENTS, b"torch==9.9.9\n")
    assert world.verify().code == "E_LOCK"


def test_manifest_and_statement_must_name_the_same_digests(world: World) -> None:
    """A file and its subject were changed together; the manifest still names the old file."""
    pylock = b'created-by = "another"\n'[:21]
    name = "locks/pylock.cpu.toml"
    assert len(pylock) == len(world.files[name])
    (world.run / name).write_bytes(pylock)
    statement = world.statement()
    subject = next(subject for subject in statement["subject"] if subject["name"] == name)
    subject["digest"]["sha256"] = digest_bytes(pylock).removeprefix("sha256:")
    world.sign_tree(statement)
    assert world.verify().code == "E_MANIFEST"


def test_an_input_may_not_stand_twice(world: World) -> None:
    inputs = world.manifest_tree()["inputs"]
    world.write_run(inputs=[*inputs, inputs[0]])
    world.sign()
    assert world.verify().code == "E_MANIFEST"


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (make_trace(1), "not that of rank 0"),
        (make_trace().replace(b"2.13.0+cpu", b"2.12.0+cpu"), "locked is 2.13.0"),
        (
            make_trace().replace(digest_bytes(b"recorder").encode(), b"sha256:" + b"0" * 64),
            "another recorder",
        ),
        (make_trace().replace(b"repro-trace/1", b"repro-trace/9"), "does not begin"),
        (make_trace().replace(b"{", b'{"perturb":"weights-1",', 1), "another perturbation"),
        (make_trace().replace(b'"head"', b'"else"'), "JSON"),
        (b"", "JSON"),
    ],
    ids=["rank", "torch", "recorder", "format", "perturbed", "no head", "empty"],
)
def test_traces_must_belong_to_manifest_and_lock(world: World, trace: bytes, says: str) -> None:
    resigned(world, TRACE, trace)
    got = world.verify()
    assert got.verdict == "REJECTED"
    assert got.code in ("E_TRACE", "E_JSON")
    assert says in next(check.detail for check in got.checks if check.code)


def test_every_rank_must_have_a_signed_trace(world: World) -> None:
    phase = world.manifest_tree()["phases"][0]
    world.write_run(phases=[{**phase, "world_size": 2}])
    world.sign()
    assert world.verify().code == "E_TRACE"
    unsigned = {"path": "trace/full/rank-9.jsonl", "size": 1, "digest": digest_bytes(b"x")}
    world.write_run(phases=[{**phase, "trace": [unsigned]}])
    world.sign()
    assert world.verify().code == "E_TRACE"


# ---- what is looked for elsewhere: image, models, data sets ----


def identity(**changes: Any) -> ImageIdentity:
    return ImageIdentity.parse({**IMAGE_IDENTITY, **changes})


def test_the_image_found_must_be_the_one_signed(world: World) -> None:
    assert world.verify(image=lambda signed: signed).verdict == "VERIFIED"
    assert world.verify(image=lambda signed: identity()).verdict == "VERIFIED"
    other = world.verify(image=lambda signed: identity(config_digest="sha256:" + "0" * 64))
    assert (other.verdict, other.code) == ("REJECTED", "E_IMAGE")
    layers = world.verify(image=lambda signed: identity(diff_ids=["sha256:" + "0" * 64]))
    assert layers.code == "E_IMAGE"
    architecture = world.verify(image=lambda signed: identity(architecture="arm64"))
    assert architecture.code == "E_IMAGE"


def test_an_image_that_cannot_be_looked_at_is_incomplete_never_verified(world: World) -> None:
    absent = world.verify(image=lambda signed: None)
    assert (absent.verdict, absent.code, absent.manifest) == ("INCOMPLETE", None, None)

    def silent(signed: ImageIdentity) -> ImageIdentity:
        raise EngineError("engine-absent", "no engine answers")

    broken = world.verify(image=silent)
    assert (broken.verdict, broken.manifest) == ("INCOMPLETE", None)
    assert "no engine answers" in next(c.detail for c in broken.checks if c.name == "image")

    def tampered(signed: ImageIdentity) -> ImageIdentity:
        raise TrustError("E_IMAGE", "a layer is not the one its digest names")

    assert world.verify(image=tampered).code == "E_IMAGE"


def test_data_sets_are_compared_file_by_file(world: World) -> None:
    def there(artifact: ArtifactLock, ignored: Any) -> tuple[FileLock, ...]:
        return artifact.files

    assert world.verify(datasets=there, models=there).verdict == "VERIFIED"
    assert world.verify(datasets=lambda artifact, ignored: None).verdict == "INCOMPLETE"
    assert world.verify(datasets=lambda artifact, ignored: ()).code == "E_INPUT"
    changed = FileLock(path="data/corpus.txt", size=6, digest="sha256:" + "0" * 64)
    assert world.verify(datasets=lambda artifact, ignored: (changed,)).code == "E_INPUT"


def test_a_run_without_an_image_says_so(world: World) -> None:
    world.write_run(image=None, runtime="host")
    world.sign()
    got = world.verify(image=lambda signed: signed)
    assert got.verdict == "VERIFIED"
    check = next(c for c in got.checks if c.name == "image")
    assert (check.state, check.wanted, check.detail) == ("not-made", False, "the run had no image")


# ---- the adapter alone ----


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "", ".", "a//b", "a\0b", "a/."])
def test_the_adapter_never_leaves_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(TrustError) as caught:
        DiskRunFolder(tmp_path).read(name, limit=10)
    assert caught.value.kind == "E_PATH"


def test_the_adapter_reads_within_limits(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    folder = DiskRunFolder(tmp_path)
    assert folder.read("f", limit=5) == b"12345"
    assert folder.digest("f") == (digest_bytes(b"12345"), 5)
    with pytest.raises(TrustError) as caught:
        folder.read("f", limit=4)
    assert caught.value.kind == "E_SIZE"
    with pytest.raises(TrustError) as missing:
        folder.read("g", limit=4)
    assert "missing" in missing.value.message


def test_the_adapter_counts_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.adapters.runfolder.MAX_ENTRIES", 2)
    for name in ("a", "b"):
        (tmp_path / name).touch()
    assert DiskRunFolder(tmp_path).names() == ["a", "b"]
    (tmp_path / "c").touch()
    with pytest.raises(TrustError) as caught:
        DiskRunFolder(tmp_path).names()
    assert caught.value.kind == "E_SIZE"


def test_the_adapter_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/l").symlink_to("x")
    (tmp_path / "a/f").write_bytes(b"1")
    folder = DiskRunFolder(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("a/f", "a/l", "a/missing", "a", "a/f/g"):
        try:
            folder.digest(name)
        except TrustError:
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("changes", [{"project": ""}, {"project": "Pilot"}, {"run_id": ""}])
def test_a_manifest_from_which_no_statement_follows(world: World, changes: dict[str, Any]) -> None:
    statement = world.statement()
    manifest = pretty_json(world.manifest_tree(**changes))
    (world.run / "manifest.json").write_bytes(manifest)
    statement["subject"][0]["digest"]["sha256"] = digest_bytes(manifest).removeprefix("sha256:")
    statement["predicate"]["files"][0]["size"] = len(manifest)
    world.sign_tree(statement)
    assert world.verify().code == "E_MANIFEST"
