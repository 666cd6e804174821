"""Pages say what the code says, and their links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "images").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_errors_is_the_source() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert page == script("errors_page").page(), "run `python scripts/errors_page.py`"


def test_the_page_of_the_tree_is_the_source() -> None:
    page = (ROOT / "docs" / "tree.md").read_text(encoding="utf-8")
    assert page == script("tree_page").page(), "run `python scripts/tree_page.py`"


def test_the_page_of_determinism_is_the_list_of_knobs() -> None:
    page = (ROOT / "docs" / "determinism.md").read_text(encoding="utf-8")
    assert page == script("determinism_page").page(), "run `python scripts/determinism_page.py`"


def test_the_page_of_the_manifest_is_the_source() -> None:
    """Examples are those of a run that is made anew now and then; everything else must agree."""
    page = (ROOT / "docs" / "manifest.md").read_text(encoding="utf-8")
    without = re.sub(
        r"^(\| `[^|]*(?:\\\|[^|]*)*\|(?:\\\||[^|])*\|)(?:\\\||[^|])*\|", r"\1  |", page, flags=re.MULTILINE
    )
    assert without == script("manifest_page").page(examples=False), "run `python scripts/manifest_page.py`"


def test_the_page_of_proof_is_what_the_benchmarks_wrote() -> None:
    page = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    assert page == script("proof_page").page(), "run `python scripts/proof_page.py`"


def test_published_schemas_are_the_nouns() -> None:
    for name, text in script("schemas").schemas().items():
        published = (ROOT / "docs" / "schema" / name).read_text(encoding="utf-8")
        assert published == text, f"docs/schema/{name}: run `python scripts/schemas.py`"
