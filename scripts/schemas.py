"""Write docs/schema/*.json, for editors and for those who read our files without us."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from repro.lock import Lock
from repro.manifest import Manifest
from repro.spec import Spec
from repro.verdict import Verdict

FOLDER = Path(__file__).parent.parent / "docs" / "schema"
NOUNS = {"repro.yaml": Spec, "repro.lock": Lock, "manifest": Manifest, "verdict": Verdict}


def schemas() -> dict[str, str]:
    """File name to JSON Schema (2020-12) text."""
    texts = {}
    for name, noun in NOUNS.items():
        schema: dict[str, Any] = noun.model_json_schema(by_alias=True)
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        texts[f"{name}.json"] = json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return texts


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/schema/{name}\n")
