"""No secret of the person who works here is in anything that is written, built or said."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from repro.adapters.docker_engine import DockerEngine
from tests.e2e.e2e_world import Signed, repro

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.torch]

VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "DOCKER_PASSWORD",
    "GITHUB_TOKEN",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "OPENAI_API_KEY",
    "SSH_AUTH_SOCK",
    "WANDB_API_KEY",
)
HOME_FILES = {
    ".netrc": "machine registry.test login me password {}\n",
    ".git-credentials": "https://me:{}@git.test\n",
    ".aws/credentials": "[default]\naws_secret_access_key = {}\n",
    ".cache/huggingface/token": "{}",
    ".config/pip/pip.conf": "[global]\nextra-index-url = http://me:{}@127.0.0.1:9/simple\n",
    ".ssh/id_ed25519": "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
    ".kube/config": "users: [{{name: me, user: {{token: {}}}}}]\n",
}
PROJECT_FILES = {
    ".env": "API_KEY={}\n",
    "signing.pem": "-----BEGIN PRIVATE KEY-----\n{}\n",
    "notes.txt": "{}\n",
}


class _Index(BaseHTTPRequestHandler):
    """A package index that holds nothing, and keeps who asked."""

    asked: list[str] = []  # noqa: RUF012 - one server

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization", ""))
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass
class Planted:
    """Secrets by where they lie, and a person's surroundings that hold them all."""

    home: Path
    project: Path
    values: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def new(self, place: str) -> str:
        """Make a secret that is nowhere else; some characters of it are escaped in addresses."""
        self.values[place] = f"plant{len(self.values):02}+{secrets.token_hex(12)}"
        return self.values[place]

    def forms(self) -> dict[bytes, str]:
        """Every way of writing each secret, to where it lies."""
        found = {}
        for place, value in self.values.items():
            data = value.encode()
            for pad in range(3):
                # Inside longer text base64 depends on the place: leave out what the neighbours decide.
                text = base64.b64encode(b"x" * pad + data)
                found[text[4 if pad else 0 : len(text) - 4]] = place
            found[data] = found[quote(value, safe="").encode()] = found[data.hex().encode()] = place
        return found

    def run(self, *arguments: str | Path) -> None:
        """Run a command as this person; all it says is kept."""
        result = repro(*arguments, **self.environment)
        self.said += [result.stdout, result.stderr]
        assert result.returncode == 0, (arguments, result.stderr[-2000:])


def _write(root: Path, files: Mapping[str, str], planted: Planted) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(planted.new(name)))


@pytest.fixture
def planted(signed: Signed, tmp_path: Path) -> Iterator[Planted]:
    project = signed.copy(tmp_path / "project")
    for left in ("repro.lock", "locks"):
        path = project / left
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = Planted(tmp_path / "home", project)
    _write(found.home, HOME_FILES, found)
    _write(project, PROJECT_FILES, found)
    login = base64.b64encode(f"me:{found.new('.docker/config.json')}".encode()).decode()
    (found.home / ".docker").mkdir()
    (found.home / ".docker" / "config.json").write_text(
        f'{{"auths": {{"registry.test": {{"auth": "{login}"}}}}}}'
    )
    remote = f"https://me:{found.new('.git/config')}@git.test/project.git"
    for command in (["init", "-q"], ["remote", "add", "origin", remote], ["add", "train.py"]):
        subprocess.run(["git", *command], cwd=project, check=True)
    who = ["-c", "user.name=me", "-c", f"user.email={found.new('author')}@test"]
    subprocess.run(["git", *who, "commit", "-qm", "first"], cwd=project, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    index = f"http://me:{quote(found.new('package index'), safe='')}@127.0.0.1:{server.server_port}/simple"
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    found.environment = {
        **{name: found.new(name) for name in VARIABLES},
        "DATABASE_URL": f"postgres://me:{found.new('DATABASE_URL')}@db.test/x",
        "HOME": str(found.home),
        "HTTPS_PROXY": f"http://me:{found.new('HTTPS_PROXY')}@127.0.0.1:9",
        "NO_PROXY": "*",
        "PIP_EXTRA_INDEX_URL": index,
        "REPRO_PASSPHRASE": found.new("REPRO_PASSPHRASE"),
        "XDG_CACHE_HOME": cache,
    }
    yield found
    server.shutdown()
    server.server_close()


def whole_flow(planted: Planted, folder: Path) -> Path:
    """Everything a person does with a project; return where all of it was written."""
    out = folder / "written"
    project, run, key = planted.project, out / "runs" / "pilot.cpu", out / "keys" / "me.key"
    planted.run("keys", "new", out / "keys" / "me")
    planted.run("keys", "trust", out / "trust.yaml", out / "keys" / "me.pub", "--principal", "me")
    trust = ("--trust", out / "trust.yaml")
    planted.run("lock", "-C", project)
    planted.run("capture", "-C", project, "--key", key, "--out", out / "runs")
    planted.run("verify", run, *trust)
    planted.run("replay", run, *trust, "-C", project, "--keep", out / "replay", "--report", out / "replay.md")
    planted.run("report", run, *trust, "--replay", out / "replay", "-o", out / "report.html")
    planted.run("show", run, "--json")
    planted.run("doctor", "--json")
    for form in ("cyclonedx", "slsa"):
        planted.run("export", run, *trust, "--format", form, "-o", out / f"{form}.json")
    planted.run("pack", run, "-o", out / "run.tar")
    shutil.copy(project / "repro.lock", out)
    shutil.copytree(project / "locks", out / "locks")
    return out


def save_image(out: Path, run: Path) -> None:
    """Put the image beside what was written, layer by layer."""
    image = json.loads((run / "manifest.json").read_text())["image"]["identity"]["config_digest"]
    with DockerEngine.connect() as engine:
        held = engine.find(image)
        assert held is not None
        with (out / "image.tar").open("wb") as file:
            for chunk in engine.save(held.id):
                file.write(chunk)
    with tarfile.open(out / "image.tar") as archive:
        assert any(member.size > 1 << 20 for member in archive), "no layer to look into"


def test_no_secret_is_written_built_or_said(planted: Planted, tmp_path: Path) -> None:
    out = whole_flow(planted, tmp_path)
    save_image(out, out / "runs" / "pilot.cpu")
    assert len(planted.values) >= 20
    assert any(asked.startswith("Basic ") for asked in _Index.asked), "the index was asked with its password"
    forms = planted.forms()
    said = "\n".join(planted.said).encode()
    assert {place for form, place in forms.items() if form in said} == set()
    patterns = tmp_path / "patterns"
    patterns.write_bytes(b"\n".join(forms))
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 20
    # A file of patterns finds itself: so it would find a secret.
    assert subprocess.run(["grep", "-alF", "-f", patterns, patterns], capture_output=True, check=True).stdout
    found = subprocess.run(
        ["grep", "-alF", "-f", patterns, *files], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.returncode) == ("", 1)
