from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from repro.host import OsFacts
from repro.report.markup import Html, tag
from repro.report.page import html_page
from repro.report.replayed import Replayed
from repro.tolerance import Bound, ToleranceSpec
from repro.userspace import Userspace
from repro.verdict import Deviation, Explanation, Outcome
from tests.report.report_traces import replayed_trace, signed_trace
from tests.report.report_world import HOSTILE, host, manifest, phase, verdict, verification

KNOWN = {
    "a", "article", "b", "body", "code", "details", "div", "figcaption", "figure", "footer", "h1",
    "h2", "h3", "h4", "head", "header", "html", "i", "link", "main", "meta", "nav", "p", "path",
    "rect", "section", "span", "style", "summary", "svg", "table", "tbody", "td", "th", "thead",
    "title", "tr",
}  # fmt: skip
VOID = {"meta", "link"}


class Reader(HTMLParser):
    """Counts elements, keeps text by section, and checks that elements nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.attributes: set[str] = set()
        self.section = ""
        self.texts: dict[str, str] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.attributes |= {name for name, _ in attrs}
        if tag == "section":
            self.section = dict(attrs)["id"] or ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self.section = ""

    def handle_data(self, data: str) -> None:
        self.texts[self.section] = self.texts.get(self.section, "") + data


def replayed(name: str = "desk", **members: Any) -> Replayed:
    members.setdefault("verdict", verdict())
    members.setdefault("trace", replayed_trace(noise_from=7))
    return Replayed(name=name, phases=(phase(),), **members)


def page(**members: Any) -> Reader:
    members.setdefault("manifest", manifest())
    members.setdefault("verification", verification())
    members.setdefault("trace", signed_trace())
    return Reader(html_page(title="pilot.cuda", **members))


def test_the_outcome_is_at_the_top() -> None:
    top = page(replays=[replayed()]).texts[""]
    assert "✗ DIVERGED" in top
    assert "Gradients differ at step 7 of 20." in top
    assert "2 of 2 checks passed, signed by alice." in top


def test_a_replay_is_laid_over_the_signed_run() -> None:
    reader = page(replays=[replayed()])
    text = reader.texts["training"]
    assert reader.seen["figure"] == 4
    assert "desk: loss or gradient norm differ in 28 of 40 recorded steps on 2 ranks." in text
    assert "first difference: step 7" in text
    assert "nothing but 0 is allowed" in text


def test_equal_runs_need_no_figure_of_differences() -> None:
    same = replayed(verdict=verdict(Outcome.BITWISE, environment="same"), trace=replayed_trace())
    reader = page(replays=[same])
    assert reader.seen["figure"] == 2
    assert "equal to the bit in 40 recorded steps" in reader.texts["training"]


def test_without_replays_the_run_is_laid_over_itself() -> None:
    text = page().texts["training"]
    assert "interrupted: loss and gradient norm are equal to the bit in 20 recorded steps on 2 ranks." in text
    assert "resumed: loss and gradient norm are equal to the bit in 20 recorded steps on 2 ranks." in text
    assert "one side only" not in text


def test_bounds_are_drawn_where_the_rule_has_them() -> None:
    rule: dict[str, Any] = {"loss": Bound(rtol=(1e-3).hex(), atol=(0.0).hex())}
    across = verdict(Outcome.WITHIN_TOLERANCE, environment="across")
    reader = page(manifest=manifest(tolerance=ToleranceSpec(across=rule)), replays=[replayed(verdict=across)])
    assert "allowed" in reader.texts["training"]
    assert "nothing but 0" not in reader.texts["training"]


def test_differences_of_machine_and_packages_are_listed() -> None:
    other = host(
        os=OsFacts(name="Debian GNU/Linux 13", kernel="6.1.0", libc="glibc 2.36"),
        userspace=Userspace(
            backend="cuda", python="3.11.7", torch="2.9.0", packages={"torch": "2.9.0", "numpy": "2.2.0"}
        ),
    )
    text = page(replays=[replayed(host=other)]).texts["environment"]
    assert "1 fact of the environment differs." in text
    assert "os.nameDebian GNU/Linux 12Debian GNU/Linux 13" in text
    assert "1 package differs." in text
    assert "numpy2.1.02.2.0" in text
    assert "was not kept" in page(replays=[replayed()]).texts["environment"]


def test_cost_layers_and_checks_are_there() -> None:
    reader = page()
    assert "full" in reader.texts["cost"]
    assert "50 ms8.0%2.0%858 MiB3.7 GiB" in reader.texts["cost"]
    assert "1base76.3 MiB" in reader.texts["image"]
    assert "2ours2.7 GiB" in reader.texts["image"]
    assert "✓folder12 files" in reader.texts["checks"]


def test_nobody_vouching_is_said() -> None:
    reader = page(verification=None)
    assert "? NOT VERIFIED" in reader.texts[""]
    assert "Nobody checked" in reader.texts["checks"]


def test_a_rejected_run_shows_no_curves() -> None:
    reader = page(verification=verification("REJECTED"), trace=None)
    assert "figure" not in reader.seen
    assert "nobody vouches" in reader.texts["training"]


def hostile_page() -> str:
    said = Explanation(category=HOSTILE, name=HOSTILE, target=HOSTILE, candidate=HOSTILE, sentence=HOSTILE)
    place = Deviation(
        phase="full", step=3, rank=0, layer="exact", kind="inputs-differ", observable=HOSTILE, tensor=HOSTILE
    )
    bad = verdict(
        sentence=HOSTILE,
        notes=(HOSTILE,),
        explanations=(said,),
        first_divergence=place,
        deviations=(place,) * 2,
    )
    return html_page(
        manifest(
            project=HOSTILE,
            run_id=HOSTILE,
            environment={HOSTILE: HOSTILE},
            host=host(os=OsFacts(name=HOSTILE)),
        ),
        verification("REJECTED", detail=HOSTILE),
        trace=signed_trace(),
        replays=[replayed(HOSTILE, verdict=bad, host=host(userspace=Userspace(packages={HOSTILE: HOSTILE})))],
        title=HOSTILE,
    )


def test_a_strangers_text_stays_text() -> None:
    page = hostile_page()
    reader = Reader(page)
    assert set(reader.seen) <= KNOWN
    assert not any(name.startswith("on") for name in reader.attributes)
    assert "<script>alert(1)</script>" in reader.texts["checks"], "it is shown as it is"
    assert "\u202e" not in page


@pytest.mark.parametrize("text", [hostile_page(), html_page(manifest(), None, trace=None, title="x")])
def test_the_page_needs_nothing_beside_it(text: str) -> None:
    reader = Reader(text)
    assert "script" not in reader.seen
    assert "img" not in reader.seen
    assert "src" not in reader.attributes
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "@import" not in text


def test_attributes_and_children_are_escaped() -> None:
    made = tag("p", '<b>&"', title='"><script>')
    assert made == '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&amp;&quot;</p>'
    assert tag("p", Html("<b></b>"), None) == "<p><b></b></p>"
