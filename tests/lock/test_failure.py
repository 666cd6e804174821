"""What pip says when it fails, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.adapters.pip.failure import explain, redact
from repro.adapters.pip.tools import Tools

Case = Callable[[str], Path]

TOOLS = {"pip": "1.0", "pip-tools": "2.0"}


def test_case_b07_tools_that_do_not_fit_together(case: Case) -> None:
    folder = case("B07")
    expected = json.loads((folder / "expected.json").read_text())
    for pip, pip_tools in expected["pairs"]:
        said = (folder / f"pip{pip}-piptools{pip_tools}.log").read_text()
        error = explain(said, {"pip": pip, "pip-tools": pip_tools})
        assert error.kind == expected["error"]
        assert pip in str(error)
        assert pip_tools in str(error)
        assert error.remedy is not None
        assert all(version in error.remedy for version in expected["known_good"])


def test_the_pair_we_pin_is_the_one_we_name(case: Case) -> None:
    expected = json.loads((case("B07") / "expected.json").read_text())
    assert [Tools.versions["pip"], Tools.versions["pip-tools"]] == expected["known_good"]


def test_logs_of_pip_in_cases_b01_and_b09(case: Case) -> None:
    version_control = explain((case("B01") / "pip-install.log").read_text(), TOOLS)
    assert version_control.kind == "unhashable-vcs"
    assert "pilot-lib" in str(version_control)
    assert explain((case("B09") / "pip-install.log").read_text(), TOOLS).kind == "constraint-with-extras"


def test_log_of_pip_in_case_b11(case: Case) -> None:
    error = explain((case("B11") / "darwin-install.log").read_text(), TOOLS)
    assert error.kind == "no-matching-wheel"
    assert "nvidia-cublas-cu12==12.4.5.8" in str(error)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("OSError: [Errno 28] No space left on device", "disk-full"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "index-untrusted"),
        ("401 Client Error: Unauthorized for url: https://one.example/simple/torch/", "index-refused"),
        ("503 Server Error: Busy for url: https://one.example/simple/torch/", "index-broken"),
        ("Connection to one.example timed out. (connect timeout=15)", "index-unreachable"),
        ("something nobody has seen before", "resolver-failed"),
        ("", "resolver-failed"),
    ],
)
def test_failures_have_a_name(said: str, kind: str) -> None:
    assert explain(said, TOOLS).kind == kind


def test_no_credential_is_told() -> None:
    assert redact("https://user:secret@host/x and http://token@host") == "https://host/x and http://host"
