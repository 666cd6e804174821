"""What the pages tell a person to type is what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from repro import strictyaml
from repro.spec import Spec
from tests.docs.command_lines import FENCE, block_lines, check_line, command_lines
from tests.docs.test_docs import LINK, ROOT

DOCS = ROOT / "docs"
HOWTO = sorted((DOCS / "howto").glob("*.md"))
TOLD = [*HOWTO, DOCS / "tutorial.md", ROOT / "README.md", *sorted({*DOCS.glob("*.md")} - {DOCS / "cli.md"})]
SPEC = "version: 1\nname: x\npilot: {command: [python, a.py], source: [a.py], steps: 1}\nseed: 1\n"


@pytest.mark.parametrize("page", dict.fromkeys(TOLD), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_line_is_one_that_there_is(page: Path) -> None:
    for line in command_lines(page.read_text(encoding="utf-8")):
        try:
            check_line(line)
        except click.UsageError as error:
            raise AssertionError(f"{page.name}: {line}: {error.format_message()}") from None


@pytest.mark.parametrize("page", HOWTO, ids=lambda page: page.stem)
def test_a_page_is_short_and_tells_what_to_type(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert len(command_lines(text)) >= 3


@pytest.mark.parametrize("page", [*HOWTO, DOCS / "tutorial.md"], ids=lambda page: page.stem)
def test_every_block_is_a_script_that_bash_can_read(page: Path) -> None:
    for block in FENCE.findall(page.read_text(encoding="utf-8")):
        read = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert (read.returncode, read.stderr) == (0, ""), block


@pytest.mark.parametrize("page", HOWTO, ids=lambda page: page.stem)
def test_every_part_of_a_spec_can_be_read(page: Path) -> None:
    for block in re.findall(
        r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        document = strictyaml.load((SPEC + block).encode(), where=page.name)
        assert strictyaml.validate(document, Spec, where=page.name).accelerators


def test_the_index_names_every_page_once() -> None:
    named = LINK.findall((DOCS / "README.md").read_text(encoding="utf-8"))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"README.md"}
    assert {name for name in named if name.endswith(".md")} == pages
    assert len(named) == len(set(named))


def test_an_audit_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    """Lines of the page that need nothing but the kept run, done in order."""
    kept = ROOT / "manifests"
    shutil.copytree(kept / "pilot.cpu", tmp_path / "manifests" / "pilot.cpu")
    shutil.copytree(kept / "pilot.cpu", tmp_path / "other" / "pilot.cpu")
    (key,) = kept.glob("**/*.pub")
    shutil.copy(key, tmp_path / "train.pub")
    wanted = ("keys show", "keys trust", "verify", "show", "diff")
    lines = block_lines((DOCS / "howto" / "audit.md").read_text(encoding="utf-8"))
    lines = [line for line in lines if line.startswith(tuple(f"repro {one}" for one in wanted))]
    lines = [line for line in lines if "--image" not in line]
    packed = "repro pack manifests/pilot.cpu -o pilot.cpu.repro.tar"
    script = "\n".join(["set -e", packed, *lines])
    program = "repro() { " + f"'{sys.executable}' -c 'from repro.cli import main; main()' \"$@\"; }}\n"
    done = subprocess.run(
        ["bash", "-c", program + script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("VERIFIED") == 2
