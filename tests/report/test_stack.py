"""What differs between two stacks is said with what it is needed for."""

from __future__ import annotations

from repro.comparability import compare_stacks
from repro.report.stack import stack_lines
from repro.userspace import Userspace
from tests.report.report_world import host, manifest


def test_of_an_equal_stack_only_what_must_be_known_and_is_not_is_said() -> None:
    one = manifest()
    lines = list(stack_lines(compare_stacks(one, one.image, one.host)))
    assert lines
    assert all(": unknown | unknown (needed for equal bits)" in line for line in lines)


def test_what_differs_is_named_with_its_need() -> None:
    one = manifest()
    other = host(userspace=Userspace(backend="cuda", python="3.12.1", torch="2.8.0"))
    lines = list(stack_lines(compare_stacks(one, None, other)))
    assert any("torch release: 2.9" in line and "needed for any comparison" in line for line in lines)
    assert any("image: sha256:" in line and "| none (needed for equal bits)" in line for line in lines)
    assert any(line.endswith("3.11.7 | 3.12.1 (informs only)") for line in lines)
