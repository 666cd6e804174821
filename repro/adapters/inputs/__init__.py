"""Where models and data sets come from, one module per kind of reference.

A source puts the files of a reference into a folder, and says which immutable
revision they are. It never says what their digests are: whoever asked computes
those from the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from repro.adapters.inputs.git import GitSource
from repro.adapters.inputs.hub import HubSource
from repro.adapters.inputs.oci import OciSource
from repro.adapters.inputs.url import UrlSource
from repro.ports import ArtifactSource

__all__ = ["artifact_sources"]


def artifact_sources() -> Mapping[str, ArtifactSource]:
    """Return the source for each kind of reference that is not in the project or its packages."""
    return {"git": GitSource(), "hub": HubSource(), "oci": OciSource(), "url": UrlSource()}
