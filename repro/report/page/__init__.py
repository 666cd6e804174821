"""A run and its replays as one HTML page: no script, no network, escaped by construction."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from repro import __version__
from repro.attest.outcome import Verification
from repro.lock import Lock
from repro.manifest import Manifest
from repro.report.manifest import manifest_rows
from repro.report.markup import Html, raw, table, tag
from repro.report.page.curves import curves_section, read_all
from repro.report.page.facts import (
    checks_section,
    cost_section,
    environment_section,
    image_section,
    packages_section,
)
from repro.report.page.outcome import outcome_banner, replays_section
from repro.report.replayed import Replayed
from repro.trace import Trace

__all__ = ["html_page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""Whatever might slip into the page, a browser neither runs it nor fetches anything for it."""


def _section(name: str, title: str, content: Html) -> tuple[str, str, Html]:
    return name, title, tag("section", tag("h2", title), content, id=name)


def html_page(
    manifest: Manifest,
    verification: Verification | None,
    *,
    trace: Trace | None,
    replays: Sequence[Replayed] = (),
    lock: Lock | None = None,
    title: str,
) -> str:
    """Write the page.

    Args:
        manifest: the signed run.
        verification: what checking it found; None where nobody checked.
        trace: the signed run's trace; None where its files are not to be read.
        replays: what it is compared with, the one to be seen first first; each name once.
        lock: the signed run's lock, for its wheels; None where it is not to be read.
        title: of the page, such as the run folder's name.

    Returns:
        HTML that needs nothing beside it. Its size does not depend on the length of the traces.

    Raises:
        TraceError: a trace breaks the format.
    """
    read = read_all(trace, replays)
    sections = [
        _section("training", "Training", curves_section(manifest, trace, replays, read)),
        _section("comparison", "Comparison", replays_section(manifest, replays)),
        _section("run", "What ran", table((), list(manifest_rows(manifest)))),
        _section("cost", "Time and memory", cost_section(manifest, replays, read, trace)),
        _section("environment", "Environment", environment_section(manifest, replays)),
        _section("packages", "Packages", packages_section(manifest, lock)),
        _section("image", "Image", image_section(manifest)),
        _section("checks", "Checks", checks_section(verification)),
    ]
    links = (tag("a", name, href=f"#{anchor}") for anchor, name, _ in sections)
    page = tag(
        "html",
        _head(title),
        tag(
            "body",
            tag(
                "header",
                tag("h1", title),
                tag("p", f"project {manifest.project}, {manifest.accelerator}, run {manifest.run_id[:12]}"),
                outcome_banner(verification, replays),
                tag("nav", *links, aria_label="Sections"),
            ),
            tag("main", *(content for _, _, content in sections)),
            tag("footer", f"Written by repro {__version__}. This page runs no script and asks no network."),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _head(title: str) -> Html:
    style = (files(__name__) / "style.css").read_text(encoding="utf-8")
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=raw(_POLICY)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", raw(style)),
    )
