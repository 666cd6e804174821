from __future__ import annotations

from repro.report.markdown import code, escaped
from repro.report.summary import summary_markdown
from repro.userspace import Userspace
from repro.verdict import Explanation, Outcome
from tests.report.report_world import HOSTILE, host, manifest, verdict, verification


def first_words(text: str) -> str:
    return text.splitlines()[2]


def test_the_outcome_of_the_replay_comes_first() -> None:
    text = summary_markdown(manifest(), verification(), verdict(), title="pilot")
    assert text.startswith("## pilot\n")
    assert first_words(text) == "**DIVERGED**: Gradients differ at step 7 of 20."
    assert "| first difference | full, step 7, rank 1: grads of blocks.0.weight (relative 0.333" in text
    assert "| signed | `1` |" in text
    assert "| now | `1.5` |" in text
    assert "| may explain | packages torch: 2.9.0 in the target, 2.9.1 in the candidate |" in text


def test_without_a_replay_the_checks_come_first() -> None:
    text = summary_markdown(manifest(), verification(), None, title="pilot")
    assert first_words(text) == "**VERIFIED**: 2 of 2 checks passed, signed by alice."
    assert "### Replay" not in text
    assert "| – | age | nobody asked |" in text


def test_a_rejection_names_the_check_and_its_code() -> None:
    text = summary_markdown(manifest(), verification("REJECTED", detail="wrong key"), None, title="pilot")
    assert first_words(text) == "**REJECTED**: 1 of 2 checks passed; signature: wrong key."
    assert "| ✗ | signature | wrong key `E_SIG` |" in text


def test_unchecked_is_said() -> None:
    assert first_words(summary_markdown(manifest(), None, None, title="pilot")).startswith("**Not verified**")


def test_what_ran_is_listed() -> None:
    text = summary_markdown(manifest(), None, verdict(Outcome.BITWISE), title="pilot")
    assert "| software | Python 3.11.7, torch 2.9.0 |" in text
    assert "4 layers, 2.8 GiB" in text
    assert "| resumed | steps 11 to 20, 2 ranks, 61.5 s |" in text
    assert "| machine | 2 × H100 sm\\_90, driver 550.54.15, Xeon |" in text


def test_unknown_software_is_said_to_be_unknown() -> None:
    text = summary_markdown(manifest(host=host(userspace=Userspace())), None, None, title="pilot")
    assert "| software | unknown |" in text


def test_a_strangers_text_stays_text() -> None:
    said = Explanation(category="x", name="x", target=None, candidate=None, sentence=HOSTILE)
    text = summary_markdown(
        manifest(project=HOSTILE),
        verification("REJECTED", detail=HOSTILE),
        verdict(sentence=HOSTILE, explanations=(said,), notes=(HOSTILE,)),
        title=HOSTILE,
    )
    assert "<script" not in text.replace("\\<", "")
    assert "@all" not in text
    assert "http://" not in text
    assert "\u202e" not in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_a_summary_stays_small() -> None:
    many = tuple(
        Explanation(category="x", name="x", target=None, candidate=None, sentence="y" * 100_000)
        for _ in range(99)
    )
    text = summary_markdown(
        manifest(project="p" * 1_000_000),
        verification(detail="d" * 1_000_000),
        verdict(explanations=many, notes=tuple("n" * 5000 for _ in range(5000))),
        title="t" * 100_000,
    )
    assert len(text.encode()) < 100_000
    assert "and 4960 more" in text


def test_code_cannot_be_left() -> None:
    assert code("a`b``c") == "``` a`b``c ```"
    assert code("a|b") == "`a\\|b`"
    assert code("") == ""


def test_escapes_are_only_where_needed() -> None:
    assert escaped("2.9.0 (relative 1e-07), loss") == "2.9.0 (relative 1e-07), loss"
