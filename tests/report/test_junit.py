from __future__ import annotations

from xml.etree import ElementTree

from repro.compare.repeat import DEVIATIONS
from repro.image import FileDifference, LayerCheck
from repro.report.junit import junit_build_xml, junit_xml
from repro.report.replayed import Replayed
from repro.verdict import Compared, Outcome, Verdict
from tests.report.report_world import HOSTILE, image, sha, verdict, verification


def parsed(*verdicts: Verdict, checked: bool = True, rejected: bool = False) -> ElementTree.Element:
    replays = [Replayed(name=f"desk-{index}", verdict=one) for index, one in enumerate(verdicts)]
    said = verification("REJECTED" if rejected else "VERIFIED") if checked else None
    return ElementTree.fromstring(junit_xml(said, replays, name="pilot.cuda"))


def cases(root: ElementTree.Element) -> dict[tuple[str | None, str | None], str]:
    return {
        (case.get("classname"), case.get("name")): case[0].tag if len(case) else "passed"
        for case in root.iter("testcase")
    }


def totals(element: ElementTree.Element) -> tuple[str | None, ...]:
    return tuple(element.get(key) for key in ("tests", "failures", "errors", "skipped"))


def test_every_check_is_a_test() -> None:
    root = parsed(rejected=True)
    assert cases(root) == {
        ("verify", "01 folder"): "passed",
        ("verify", "02 signature"): "failure",
        ("verify", "03 age"): "skipped",
    }
    failure = next(root.iter("failure"))
    assert (failure.get("type"), failure.get("message")) == ("E_SIG", "1 of 1")
    assert totals(root) == totals(root[0]) == ("3", "1", "0", "1")


def test_every_observable_of_every_phase_is_a_test() -> None:
    root = parsed(verdict(), checked=False)
    assert cases(root) == {
        ("replay.desk-0", "verdict"): "failure",
        ("replay.desk-0.full", "loss"): "passed",
        ("replay.desk-0.full", "grads"): "failure",
    }
    told = [failure.text for failure in root.iter("failure")][1]
    assert told is not None
    assert told.startswith("full, step 7, rank 1: grads of blocks.0.weight: signed 1, now 1.5")


def test_a_reproduction_passes() -> None:
    compared = Compared(
        phases=("full",), ranks=1, steps=3, observables=("loss", "rng"), not_enforced=("rng",)
    )
    root = parsed(verdict(Outcome.BITWISE, compared=compared), checked=False)
    assert totals(root) == ("3", "0", "0", "1")


def test_what_cannot_be_told_is_an_error_and_no_pass() -> None:
    compared = Compared(phases=("full",), ranks=1, steps=3, observables=("loss",))
    root = parsed(verdict(Outcome.INCOMPARABLE, kind="reference-stale", compared=compared), checked=False)
    assert cases(root) == {
        ("replay.desk-0", "verdict"): "error",
        ("replay.desk-0.full", "loss"): "skipped",
    }


def test_nothing_passes_that_was_cut_off() -> None:
    first = verdict().deviations[0]
    root = parsed(verdict(deviations=(first,) * DEVIATIONS), checked=False)
    assert cases(root)["replay.desk-0.full", "loss"] == "skipped"


def test_totals_are_those_of_all_suites() -> None:
    root = parsed(verdict(), verdict(Outcome.BITWISE))
    sums = [
        sum(int(suite.get(key, "")) for suite in root) for key in ("tests", "failures", "errors", "skipped")
    ]
    assert totals(root) == tuple(map(str, sums))


def test_a_strangers_text_stays_text() -> None:
    bad = "\x00\ud800" + HOSTILE
    replay = Replayed(name=bad, verdict=verdict(sentence=bad))
    root = ElementTree.fromstring(junit_xml(verification("REJECTED", detail=bad), [replay], name=bad))
    assert "<script>alert(1)</script>" in (next(root.iter("failure")).get("message") or "")


def rebuilt(*, same: bool = True, reason: str = "installer") -> ElementTree.Element:
    first = image()
    other = first.identity.model_copy(update={"config_digest": sha("o"), "diff_ids": (sha("x"),)})
    again = first if same else first.model_copy(update={"identity": other})
    members = {"path": "opt/x\x1b.py", "aspect": "content", "expected": "a", "found": "b", "reason": reason}
    check = LayerCheck(
        image=sha("config"),
        layer=sha("l"),
        assembled=sha("a"),
        files=2,
        identical=1,
        differences=(FileDifference.parse(members),),
    )
    return ElementTree.fromstring(junit_build_xml(first, again, check, name="pilot (cpu)"))


def test_a_rebuild_that_gives_the_same_passes() -> None:
    root = rebuilt()
    assert cases(root) == {
        ("build", "image is the same"): "passed",
        ("build.packages", "files are those of the wheels"): "passed",
    }
    assert root.get("name") == "pilot (cpu)"


def test_a_rebuild_that_differs_says_which_layers_and_files() -> None:
    root = rebuilt(same=False, reason="unexplained")
    assert cases(root) == {
        ("build", "image is the same"): "failure",
        ("build.packages", "opt/x\\x1b.py: content"): "failure",
    }
    image_failed, file_failed = root.iter("failure")
    assert image_failed.get("type") == "image-differs"
    assert (image_failed.text or "").splitlines()[0] == f"layer 1: {sha('layer 0')}, then {sha('x')}"
    assert file_failed.get("message") == "expected a, found b"
    assert totals(root) == ("2", "2", "0", "0")
