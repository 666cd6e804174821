"""The page in a real browser: no complaint on the console, figures drawn, and it fits a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape
from pathlib import Path
from typing import Any

import pytest

from repro.report.page import html_page
from repro.report.replayed import Replayed
from repro.userspace import Userspace
from tests.report.report_traces import replayed_trace, signed_trace
from tests.report.report_world import host, manifest, phase, verdict, verification
from tests.report.test_page import hostile_page

pytestmark = pytest.mark.interop

QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
)

MEASURE = """<script>
onload = () => {
  const frame = document.querySelector('iframe').contentDocument;
  const box = element => element.getBoundingClientRect();
  const labels = [...frame.querySelectorAll('.plot .x, .plot .y, .plot .flag')];
  document.title = JSON.stringify({
    wide: frame.documentElement.scrollWidth,
    plots: [...frame.querySelectorAll('.plot svg')].map(svg => [box(svg).width, box(svg).height]),
    drawn: [...frame.querySelectorAll('.plot .line')].every(path => path.getTotalLength() > 0),
    outside: labels.filter(label => box(label).left < 0 || box(label).right > innerWidth).length,
    paper: frame.defaultView.getComputedStyle(frame.body).backgroundColor,
    ink: frame.defaultView.getComputedStyle(frame.body).color,
  });
};
</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium: install the package chromium")
    return found


def browse(chromium: str, page: str, folder: Path, *flags: str) -> tuple[str, list[str]]:
    """Load a page; return its DOM and what the console said."""
    folder.mkdir(exist_ok=True)
    place = folder / "page.html"
    place.write_text(page, encoding="utf-8")
    command = [chromium, *QUIET, f"--user-data-dir={folder / 'profile'}", *flags, place.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=folder)
    return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]


def report() -> str:
    other = host(userspace=Userspace(backend="cuda", torch="2.9.1", packages={"torch": "2.9.1"}))
    replays = [
        Replayed(
            name=name,
            verdict=verdict(),
            phases=(phase(),),
            trace=replayed_trace(200, noise_from=7),
            host=other,
        )
        for name in ("desk", "rack")
    ]
    return html_page(manifest(), verification(), trace=signed_trace(200), replays=replays, title="pilot.cuda")


def measured(chromium: str, page: str, folder: Path, *, width: int, dark: bool = False) -> dict[str, Any]:
    """Lay the page out in a frame of a given width and measure it there."""
    frame = f'<iframe width="{width}" height="900" style="border:0" srcdoc="{escape(page)}"></iframe>'
    host_page = f"<!doctype html><body style='margin:0'>{frame}{MEASURE}"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    dom, said = browse(
        chromium, host_page, folder, scheme, f"--window-size={max(width, 500)},900", "--dump-dom"
    )
    assert said == []
    title = re.search(r"<title>(\{.*?\})</title>", dom)
    assert title is not None
    numbers: dict[str, Any] = json.loads(title[1])
    return numbers


@pytest.mark.parametrize("page", [report(), hostile_page()], ids=["report", "hostile"])
def test_the_console_stays_silent_and_figures_are_in_the_dom(
    chromium: str, page: str, tmp_path: Path
) -> None:
    dom, said = browse(chromium, page, tmp_path, "--dump-dom")
    assert said == []
    assert dom.count("<figure>") >= 4
    assert len(re.findall(r'class="line (?:signed|other-0)"', dom)) >= 4
    assert dom.count("<script") == 0


def test_a_complaint_would_be_seen_and_the_policy_stops_what_slips_in(chromium: str, tmp_path: Path) -> None:
    page = report().replace(
        "<body>", "<body><script>document.title = 'ran'</script><img src='http://x.invalid/'>"
    )
    dom, said = browse(chromium, page, tmp_path, "--dump-dom")
    assert "<title>ran</title>" not in dom
    assert len(said) >= 2
    assert all("Content Security Policy" in line for line in said)


@pytest.mark.parametrize("width", [320, 400, 1200])
def test_the_page_fits_its_width(chromium: str, tmp_path: Path, width: int) -> None:
    numbers = measured(chromium, report(), tmp_path, width=width)
    assert numbers["wide"] <= width
    assert numbers["outside"] == 0
    assert numbers["drawn"]
    assert all(plot[0] > 0.6 * min(width, 992) and plot[1] > 150 for plot in numbers["plots"])


def test_a_strangers_long_names_fit_too(chromium: str, tmp_path: Path) -> None:
    assert measured(chromium, hostile_page(), tmp_path, width=400)["wide"] <= 400


def test_dark_is_dark(chromium: str, tmp_path: Path) -> None:
    def brightness(colour: str) -> int:
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    light = measured(chromium, report(), tmp_path / "light", width=400)
    dark = measured(chromium, report(), tmp_path / "dark", width=400, dark=True)
    assert brightness(light["paper"]) > 600 > 200 > brightness(light["ink"])
    assert brightness(dark["paper"]) < 200 < 600 < brightness(dark["ink"])


def test_it_prints(chromium: str, tmp_path: Path) -> None:
    target = tmp_path / "page.pdf"
    _, said = browse(chromium, report(), tmp_path, f"--print-to-pdf={target}", "--no-pdf-header-footer")
    assert said == []
    data = target.read_bytes()
    assert data.startswith(b"%PDF")
    assert data.count(b"/Type /Page\n") >= 2
