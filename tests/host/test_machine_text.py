"""A machine as a person reads it, and as `repro doctor --json` prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

from click.testing import CliRunner

from repro.adapters.assemble import assemble
from repro.cli.doctor import command
from repro.doctor import examine
from repro.host import Device, HostFacts, NoAnswerKind
from repro.report.machine import finding_lines, machine_lines
from tests.host.host_world import read_fixture

PAGE = Path(__file__).parents[2] / "docs" / "host.md"


def test_a_person_reads_devices_parts_and_what_is_open() -> None:
    facts = assemble(
        [
            read_fixture("nvidia/log-570.txt"),
            read_fixture("nvidia/table-forward-compat.txt"),
            read_fixture("amd/table-7.0.txt"),
        ]
    )
    text = "\n".join(machine_lines(facts))
    assert "0: NVIDIA H100 PCIe 81559 MiB MIG 0000:65:00.0" in text
    assert "mig 1 9984 MiB 14 units" in text
    assert "version unknown, in-tree, ROCm 7.0.2" in text
    assert "sources disagree" in text
    assert "None" not in text


def test_names_cannot_move_the_cursor() -> None:
    facts = HostFacts(devices=(Device(vendor="nvidia", index=0, name="x\x1b[2Jy"),))
    assert all(line.isprintable() for line in machine_lines(facts))


def test_every_finding_has_its_line() -> None:
    findings = examine(HostFacts())
    lines = [line for _, line in finding_lines(findings)]
    assert sum(line.startswith(("yes ", "no  ")) for line in lines) == len(findings)


def test_the_command_prints_facts_for_machines() -> None:
    result = CliRunner().invoke(command, ["--json"])
    assert result.exit_code == 0
    tree = json.loads(result.stdout)
    assert HostFacts.parse(tree["host"]).format == "repro-host/1"
    assert {"lock", "build", "run", "replay", "verify"} == {finding["can"] for finding in tree["findings"]}


def test_the_page_names_every_field_and_kind() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind in get_args(NoAnswerKind):
        assert f"| `{kind}` |" in page, kind
    for name in HostFacts.model_fields.keys() - {"format"}:
        assert f"`{name}`" in page, name
