"""What users of other signers ran into: family F of `../shared/cases`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from repro.cli.evidence import find_files
from repro.errors import LockError
from repro.lock import ArtifactLock
from repro.resolve.files import hash_tree
from repro.trust import parse_moment
from tests.attest.attest_world import World

CASES = Path(__file__).parents[3] / "shared" / "cases"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}")


def case(name: str, file: str = "expected.json") -> Any:
    return json.loads((CASES / name / file).read_bytes())


def test_f01_links_matter_only_where_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "outside.bin").write_bytes(b"x")
    for line in (CASES / "F01" / "tree.txt").read_text().splitlines():
        name, _, target = line.partition(" -> ")
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if target:
            place.symlink_to(target)
        else:
            place.write_bytes(b"{}")
    ignored = tuple(case("F01", "ignore.json"))
    with pytest.raises(LockError) as caught:
        hash_tree(tmp_path / "model", ignored=ignored)
    assert caught.value.kind == "link-outside"
    assert case("F01")["path"] in str(caught.value)
    (tmp_path / "model" / case("F01")["path"]).unlink()
    assert [file.path for file in hash_tree(tmp_path / "model", ignored=ignored)] == ["config.json"]


def test_f03_what_is_ignored_is_what_was_signed() -> None:
    model = CASES / "F03" / "model"
    predicate = case("F03", "payload.json")["predicate"]
    (resource,) = predicate["resources"]
    size = (model / resource["name"]).stat().st_size
    file = {"path": resource["name"], "size": size, "digest": f"sha256:{resource['digest']}"}
    tree = {"name": "model", "kind": "path", "requested": "model", "target": "model", "files": [file]}
    find = find_files(model.parent)
    assert find is not None
    found = find(
        ArtifactLock.parse({**tree, "total_bytes": size}), tuple(predicate["serialization"]["ignore_paths"])
    )
    assert found is not None
    assert [(one.path, one.digest) for one in found] == [(file["path"], file["digest"])]


def test_f07_times_are_claims(world: World) -> None:
    manifest, expected = case("F07", "manifest.json"), case("F07")
    world.write_run(created_at=manifest["signed_at"])
    world.sign()
    got = world.verify(now=parse_moment(manifest["now_for_test"]))
    assert (got.verdict, expected["verdict"]) == ("VERIFIED", "ok")
    assert got.warnings[0].startswith(expected["warning"])
