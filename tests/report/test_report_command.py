from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from repro.cli.report import command
from repro.digest import digest_bytes, pretty_json
from repro.errors import FileError, ReproError, TrustError
from repro.lock import FileLock
from repro.manifest import PhaseRecord
from repro.trace import write_line
from repro.verdict import Outcome
from tests.report.report_traces import events
from tests.report.report_world import host, lock, manifest, phase, verdict

GOLDEN = Path(__file__).parent.parent / "attest" / "goldens" / "v1"


def put(folder: Path, name: str, data: bytes) -> FileLock:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return FileLock(path=name, size=len(data), digest=digest_bytes(data))


def recorded(folder: Path, **members: Any) -> PhaseRecord:
    """Write the trace of a full phase with two ranks."""
    files = tuple(
        put(
            folder,
            f"trace/full/rank-{rank}.jsonl",
            b"".join(map(write_line, events(rank, steps=8, **members))),
        )
        for rank in range(2)
    )
    return phase(steps=8).model_copy(update={"trace": files})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "pilot.cuda"
    locked = put(folder, "repro.lock", pretty_json(lock().tree()))
    document = manifest(phases=(recorded(folder),), lock=locked)
    put(folder, "manifest.json", pretty_json(document.tree()))
    return folder


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    phases = [recorded(folder, noise_from=5).tree()]
    put(folder, "verdict.json", pretty_json(verdict().tree()))
    put(folder, "phases.json", pretty_json(phases))
    put(folder, "host.json", pretty_json(host().tree()))
    return folder


def report(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments], catch_exceptions=True)


def refused(result: Result, kind: str, family: type[ReproError]) -> None:
    assert isinstance(result.exception, family), result.output
    assert result.exception.kind == kind


def test_markdown_is_printed_where_nothing_else_is_asked(run: Path, kept: Path) -> None:
    result = report(run, "--replay", kept)
    assert result.exit_code == 0
    assert result.output.startswith("## pilot.cuda\n\n**DIVERGED**")


def test_the_ending_decides(run: Path, kept: Path, tmp_path: Path) -> None:
    for name, begins in (("a.html", "<!doctype html>"), ("a.md", "## "), ("a.xml", "<?xml")):
        result = report(run, "--replay", kept, "-o", tmp_path / name)
        assert result.exit_code == 0, result.exception
        assert result.stdout == ""
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)
    assert report(run, "-o", tmp_path / "a.pdf").exit_code == 2


def test_the_page_shows_both_runs_and_the_wheels(run: Path, kept: Path) -> None:
    result = report(run, "--replay", kept, "--format", "html")
    assert result.exit_code == 0, result.exception
    assert "desk: loss or gradient norm differ in 8 of 16 recorded steps on 2 ranks." in result.output
    assert "2 wheels, 1.9 MiB, 1 asked for by name; Python 3.11, x86_64." in result.output


def test_a_verdict_alone_is_enough(run: Path, kept: Path) -> None:
    result = report(run, "--replay", kept / "verdict.json", "--format", "html")
    assert result.exit_code == 0, result.exception
    assert "Gradients differ at step 7 of 20." in result.output


def test_replays_of_one_name_are_told_apart(run: Path, kept: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "desk"
    shutil.copytree(kept, other)
    put(other, "verdict.json", pretty_json(verdict(Outcome.BITWISE).tree()))
    result = report(run, "--replay", kept, "--replay", other)
    assert "**DIVERGED** (desk (1))" in result.output
    assert "**BITWISE** (desk (2))" in result.output


@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden run is not there")
def test_with_a_policy_the_checks_are_part_of_it(tmp_path: Path) -> None:
    arguments = (GOLDEN / "run", "--trust", GOLDEN / "trust" / "trust.yaml")
    root = ElementTree.fromstring(report(*arguments, "--format", "junit").output)
    assert {suite.get("name") for suite in root} == {"verify"}
    assert root.get("failures") == root.get("errors") == "0"
    page = report(*arguments, "--format", "html")
    assert page.exit_code == 0, page.exception
    assert "✓ VERIFIED" in page.output


@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden run is not there")
def test_a_rejected_run_is_reported_without_its_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / "run", run)
    with (run / "trace" / "full" / "rank-0.jsonl").open("ab") as stream:
        stream.write(b"{}\n")
    arguments = (run, "--trust", GOLDEN / "trust" / "trust.yaml")
    page = report(*arguments, "--format", "html")
    assert page.exit_code == 0, page.exception
    assert "✗ REJECTED" in page.output
    assert "<figure>" not in page.output
    assert report(*arguments, "--format", "junit").output.count("<failure") == 1


def test_without_a_policy_files_must_be_what_the_manifest_says(run: Path) -> None:
    with (run / "trace" / "full" / "rank-1.jsonl").open("ab") as stream:
        stream.write(b"{}\n")
    refused(report(run, "--format", "html"), "E_SUBJECT", TrustError)


def test_links_are_not_followed(run: Path, tmp_path: Path) -> None:
    place = run / "trace" / "full" / "rank-1.jsonl"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    refused(report(run, "--format", "html"), "E_PATH", TrustError)


def test_paths_that_lead_out_are_refused(run: Path) -> None:
    tree = json.loads((run / "manifest.json").read_bytes())
    tree["lock"]["path"] = "../desk/verdict.json"
    put(run, "manifest.json", pretty_json(tree))
    refused(report(run, "--format", "html"), "E_PATH", TrustError)


@pytest.mark.parametrize("name", ["verdict.json", "phases.json", "host.json"])
def test_a_folder_that_is_no_replay_is_said_to_be_none(run: Path, kept: Path, name: str) -> None:
    for data in (b"[7]", b'{"outcome": "GOOD"}'):
        put(kept, name, data)
        refused(report(run, "--replay", kept), "not-a-replay", FileError)
    (kept / name).unlink()
    refused(report(run, "--replay", kept), "not-a-replay", FileError)


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    refused(report(tmp_path), "not-a-run", FileError)
