"""Models and data sets from elsewhere, by real clients from servers on loopback."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repro.adapters.inputs.git import GitSource
from repro.adapters.inputs.hub import HubSource, revision_kind
from repro.adapters.inputs.oci import OciSource
from repro.adapters.inputs.url import UrlSource
from repro.digest import digest_bytes
from repro.errors import LockError, NetworkError, ReproError
from repro.ports import ArtifactSource
from repro.resolution import Found, Reference
from repro.resolve.files import hash_tree
from tests.adapters.debian_registry import push, push_manifest, serve_registry
from tests.lock.input_world import POINTER, Repo, Sites, serve_sites
from tests.lock.lock_world import Quiet

Case = Callable[[str], Path]


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    """A server with nothing on it yet."""
    folder = tmp_path / "served"
    folder.mkdir()
    with serve_sites(folder) as made:
        yield made


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """An empty folder to bring files to."""
    folder = tmp_path / "brought"
    folder.mkdir()
    return folder


def bring(source: ArtifactSource, text: str, into: Path, revision: str | None = None) -> Found:
    return source.materialise(Reference(text=text, revision=revision, role="model"), into, Quiet())


def refused(source: ArtifactSource, text: str, into: Path, revision: str | None = None) -> ReproError:
    with pytest.raises(ReproError) as caught:
        bring(source, text, into, revision)
    assert caught.value.where is not None
    assert caught.value.remedy is not None
    return caught.value


def tree(folder: Path) -> dict[str, bytes]:
    return {file.path: (folder / file.path).read_bytes() for file in hash_tree(folder)}


class TestUrl:
    def test_a_file_is_brought_whole_although_the_connection_broke(self, sites: Sites, into: Path) -> None:
        data = os.urandom(300_000)
        sites.files["/files/data/corpus v1.bin"] = data
        sites.cut["/files/data/corpus v1.bin"] = 100_000

        found = bring(UrlSource(), f"{sites.base}/files/data/corpus%20v1.bin", into)

        assert tree(into) == {"corpus v1.bin": data}
        assert found == Found(
            requested=f"{sites.base}/files/data/corpus%20v1.bin", hints={"corpus v1.bin": '"v1"'}
        )

    def test_credentials_are_used_and_not_told(
        self, sites: Sites, into: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sites.files["/files/x"] = b"x"
        monkeypatch.setenv("TOKEN", "opensesame")
        address = sites.base.replace("//", "//reader:${TOKEN}@")
        found = bring(UrlSource(), f"{address}/files/x", into)
        assert found.requested == f"{sites.base}/files/x"
        error = refused(UrlSource(), f"{address}/files/absent", into)
        assert error.kind == "download-refused"
        assert "opensesame" not in f"{error} {error.where} {error.remedy}"

    @pytest.mark.parametrize(
        "text", ["ftp://h/file", "https://h", "https://h/folder/", "https://h/..", "corpus.txt"]
    )
    def test_addresses_of_nothing(self, into: Path, text: str) -> None:
        assert refused(UrlSource(), text, into).kind == "url-malformed"

    def test_nobody_there(self, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("time.sleep", lambda _: None)
        assert refused(UrlSource(), "http://127.0.0.1:9/x", into).kind == "download-failed"


class TestGit:
    @pytest.fixture
    def git(self, sites: Sites, tmp_path: Path) -> Callable[..., str]:
        """Run git in a working tree whose `origin` is served as `/git/model`."""
        work = tmp_path / "work"
        work.mkdir()
        bare = sites.folder / "model"
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "protocol.file.allow=always"]

        def run(*arguments: str) -> str:
            done = subprocess.run(
                ["git", "-C", str(work), *identity, *arguments], check=True, capture_output=True, text=True
            )
            return done.stdout.strip()

        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True)
        run("init", "-q", "-b", "main")
        run("remote", "add", "origin", str(bare))
        return run

    def commit(self, git: Callable[..., str], tmp_path: Path, files: dict[str, str]) -> str:
        for path, text in files.items():
            place = tmp_path / "work" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, newline="")
        git("add", "-A")
        git("commit", "-q", "-m", "more")
        git("push", "-q", "origin", "main", "--tags")
        return git("rev-parse", "HEAD")

    def test_every_form_of_revision_becomes_a_commit(
        self, sites: Sites, git: Callable[..., str], tmp_path: Path
    ) -> None:
        first = self.commit(git, tmp_path, {"config.json": "{}", "sub/vocab.txt": "a\r\nb\n"})
        git("tag", "-a", "-m", "first", "v1")
        second = self.commit(git, tmp_path, {"config.json": "{1}", ".gitattributes": "*.txt text eol=crlf\n"})

        for number, (revision, commit) in enumerate(
            [(None, second), ("main", second), ("v1", first), (first, first), (first[:9], first)]
        ):
            folder = tmp_path / f"brought-{number}"
            folder.mkdir()
            found = bring(GitSource(), f"{sites.base}/git/model", folder, revision)
            assert found.commit == commit
            # Bytes are those of the commit: the second, whose attributes ask for CRLF, holds LF.
            assert tree(folder)["sub/vocab.txt"] == (b"a\r\nb\n" if commit == first else b"a\nb\n")
            assert tree(folder)["config.json"] == (b"{}" if commit == first else b"{1}")

    def test_lfs_files_are_brought_and_checked(
        self, sites: Sites, git: Callable[..., str], tmp_path: Path, into: Path
    ) -> None:
        weights = os.urandom(200_000)
        self.commit(git, tmp_path, {"model.safetensors": sites.pointer(weights)})
        bring(GitSource(), f"{sites.base}/git/model", into)
        assert tree(into) == {"model.safetensors": weights}

    def test_lfs_objects_that_are_missing_or_wrong(
        self, sites: Sites, git: Callable[..., str], tmp_path: Path
    ) -> None:
        oid = hashlib.sha256(b"weights").hexdigest()
        self.commit(git, tmp_path, {"model.safetensors": POINTER.format(oid=oid, size=7)})
        for number, (held, kind) in enumerate([(None, "lfs-refused"), (b"wEights", "lfs-differs")]):
            folder = tmp_path / f"brought-{number}"
            folder.mkdir()
            if held is not None:
                sites.lfs[oid] = held
            error = refused_anywhere(GitSource(), f"{sites.base}/git/model", folder)
            assert error.kind == kind
            assert oid in str(error)

    def test_links_and_submodules(
        self, sites: Sites, git: Callable[..., str], tmp_path: Path, into: Path
    ) -> None:
        (tmp_path / "work" / "link").symlink_to("config.json")
        self.commit(git, tmp_path, {"config.json": "{}"})
        git("submodule", "add", "-q", str(sites.folder / "model"), "nested")
        self.commit(git, tmp_path, {})
        found = bring(GitSource(), f"{sites.base}/git/model", into)
        assert found.warnings == ("nested is a submodule, which is not fetched",)
        assert tree(into)["link"] == b"{}"

    def test_what_is_not_there(
        self, sites: Sites, git: Callable[..., str], tmp_path: Path, into: Path
    ) -> None:
        self.commit(git, tmp_path, {"a": "a"})
        address = f"{sites.base}/git/model"
        assert refused(GitSource(), address, into, "no-such-branch").kind == "revision-missing"
        assert refused(GitSource(), address, into, "0" * 40).kind == "revision-missing"
        assert refused(GitSource(), address, into, "0badcafe").kind == "revision-missing"
        secret = address.replace("//", "//reader:opensesame@").replace("model", "absent")
        error = refused(GitSource(), secret, into)
        assert error.kind == "git-unreachable"
        assert "opensesame" not in f"{error} {error.where}"

    @pytest.mark.parametrize("text", ["--upload-pack=touch /tmp/x", "ext::sh -c touch", "corpus"])
    def test_addresses_that_are_none(self, into: Path, text: str) -> None:
        assert refused(GitSource(), text, into).kind == "git-malformed"

    def test_a_commit_that_leads_out_of_its_folder(
        self, sites: Sites, git: Callable[..., str], tmp_path: Path, into: Path
    ) -> None:
        self.commit(git, tmp_path, {"a": "a"})
        bare = ["git", "-C", str(sites.folder / "model"), "-c", "user.name=a", "-c", "user.email=a@b.example"]
        entry = b"100644 ..\0" + bytes.fromhex(git("hash-object", "a"))

        def plumb(*arguments: str, data: bytes = b"") -> str:
            done = subprocess.run([*bare, *arguments], input=data, capture_output=True, check=True)
            return done.stdout.decode().strip()

        made = plumb("hash-object", "-t", "tree", "-w", "--stdin", "--literally", data=entry)
        plumb("update-ref", "refs/heads/bad", plumb("commit-tree", "-m", "bad", made))
        assert refused(GitSource(), f"{sites.base}/git/model", into, "bad").kind == "git-unsafe"


def tarball(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


class TestOci:
    def push(self, sites: Sites, *layers: dict[str, object], name: str = "org/model", tag: str = "v1") -> str:
        """Hold an artifact; each layer gives `data`, and what else its descriptor has. Return its digest."""
        described = []
        for layer in layers:
            data = layer.pop("data")
            assert isinstance(data, bytes)
            digest = str(digest_bytes(data))
            sites.files[f"/v2/{name}/blobs/{digest}"] = data
            described.append(
                {"mediaType": "application/octet-stream", "digest": digest, "size": len(data), **layer}
            )
        manifest = {
            "schemaVersion": 2,
            "layers": described,
            "annotations": {"org.opencontainers.image.licenses": "MIT"},
        }
        data = json.dumps(manifest).encode()
        sites.files[f"/v2/{name}/manifests/{tag}"] = data
        sites.files[f"/v2/{name}/manifests/{digest_bytes(data)}"] = data
        return str(digest_bytes(data))

    def test_named_layers_are_files_and_tars_are_unpacked(self, sites: Sites, tmp_path: Path) -> None:
        title = "org.opencontainers.image.title"
        digest = self.push(
            sites,
            {"data": b"{}", "annotations": {title: "sub/config.json"}},
            {
                "data": tarball({"a.txt": b"a"}),
                "annotations": {title: "x", "io.deis.oras.content.unpack": "true"},
            },
            {
                "data": tarball({"w/b.bin": b"b"}),
                "mediaType": "application/vnd.cncf.model.weight.v1.tar+gzip",
            },
        )
        host = sites.base.removeprefix("http://")
        for number, text in enumerate((f"{host}/org/model:v1", f"{host}/org/model@{digest}")):
            into = tmp_path / str(number)
            into.mkdir()
            found = bring(OciSource(), text, into)
            assert tree(into) == {"a.txt": b"a", "sub/config.json": b"{}", "w/b.bin": b"b"}
            assert found == Found(requested=text, resolved=f"{host}/org/model@{digest}", licence="MIT")

    @pytest.mark.parametrize(
        "layer",
        [
            {"data": b"x"},
            {"data": b"x", "annotations": {"org.opencontainers.image.title": "../../etc/x"}},
            {"data": b"no tar", "mediaType": "application/x.tar"},
            {"data": tarball({"../x": b"x"}), "mediaType": "application/x.tar+gzip"},
        ],
    )
    def test_layers_that_are_no_files(self, sites: Sites, into: Path, layer: dict[str, object]) -> None:
        self.push(sites, dict(layer))
        host = sites.base.removeprefix("http://")
        assert refused(OciSource(), f"{host}/org/model:v1", into).kind == "oci-malformed"
        assert not (into.parent / "x").exists()

    def test_other_bytes_and_no_artifact(self, sites: Sites, into: Path) -> None:
        title = {"org.opencontainers.image.title": "x"}
        self.push(sites, {"data": b"right", "annotations": title})
        sites.files[f"/v2/org/model/blobs/{digest_bytes(b'right')}"] = b"wrong"
        host = sites.base.removeprefix("http://")
        assert refused(OciSource(), f"{host}/org/model:v1", into).kind == "registry-wrong-bytes"
        assert refused(OciSource(), f"{host}/org/model:v2", into).kind == "base-not-found"
        self.push(sites, name="org/empty")
        assert refused(OciSource(), f"{host}/org/empty:v1", into).kind == "oci-malformed"


def test_debians_registry_serves_a_model(tmp_path: Path, into: Path) -> None:
    with serve_registry(tmp_path / "registry") as host:
        data = b"weights" * 1000
        title = {"org.opencontainers.image.title": "weights.bin"}
        kind = "application/vnd.oci.image.manifest.v1+json"
        empty = push(host, "org/model", b"{}")
        blob = push(host, "org/model", data)
        tree_of = {
            "mediaType": kind,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": empty, "size": 2},
            "layers": [{"mediaType": "application/x", "digest": blob, "size": 7000, "annotations": title}],
        }
        digest = push_manifest(host, "org/model", "v1", tree_of)
        found = bring(OciSource(), f"{host}/org/model:v1", into)
        assert found.resolved == f"{host}/org/model@{digest}"
        assert tree(into) == {"weights.bin": data}
        assert refused(OciSource(), f"{host}/org/model:v2", into).kind == "base-not-found"


def refused_anywhere(source: ArtifactSource, text: str, into: Path) -> ReproError:
    with pytest.raises((LockError, NetworkError)) as caught:
        bring(source, text, into)
    return caught.value


ONE, TWO = "1234567" + "a" * 33, "89abcde" + "b" * 33


class TestHub:
    @pytest.fixture(autouse=True)
    def hub(self, sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sites:
        """The client's own settings point to the server, its cache and token to nothing."""
        client = pytest.importorskip("huggingface_hub.constants")
        monkeypatch.setenv("HF_ENDPOINT", sites.base)
        monkeypatch.setattr(client, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(client, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        sites.repos["models/org/model"] = Repo(
            commits={
                ONE: {"config.json": b"{}"},
                TWO: {"config.json": b"{2}", "sub/weights.bin": b"w" * 5000},
            },
            refs={"main": TWO, "refs/pr/5": ONE, "v1.0": ONE},
            licence="apache-2.0",
        )
        return sites

    def test_case_d01_every_form_of_revision_becomes_a_commit(self, tmp_path: Path) -> None:
        for revision, commit in [
            (None, TWO),
            ("main", TWO),
            ("v1.0", ONE),
            ("refs/pr/5", ONE),
            (ONE[:7], ONE),
            (ONE, ONE),
        ]:
            folder = tmp_path / f"brought-{(revision or 'none').replace('/', '-')}"
            folder.mkdir()
            found = bring(HubSource(), "org/model", folder, revision)
            assert (found.commit, found.licence, found.resolved) == (commit, "apache-2.0", None)
            assert tree(folder)["config.json"] == (b"{}" if commit == ONE else b"{2}")
        assert tree(tmp_path / "brought-main")["sub/weights.bin"] == b"w" * 5000

    def test_case_d01_kinds(self, case: Case) -> None:
        folder = case("D01")
        expected = json.loads((folder / "expected.json").read_text())
        pins = json.loads((folder / "pins.json").read_text())
        kinds = [revision_kind(pin["revision"]) for pin in pins]
        assert kinds == expected["kinds"]
        assert [kind == "commit" for kind in kinds] == expected["storable_as_is"]

    def test_a_revision_that_is_not_there(self, into: Path) -> None:
        for revision in ("gone", "fffffff"):
            error = refused(HubSource(), "org/model", into, revision)
            assert error.kind == "revision-missing"
            assert revision in str(error)

    def test_case_d03_offline(
        self, case: Case, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = case("D03")
        expected = json.loads((folder / "expected.json").read_text())
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "cache"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        error = refused(HubSource(), "org/model", into, "main")
        assert error.kind == expected["by_main"]
        assert all(commit in str(error) for commit in expected["commits"])
        found = bring(HubSource(), "org/model", into, expected["commits"][0])
        assert found.commit == expected["commits"][0]
        assert list(tree(into)) == ["config.json"]

    def test_offline_a_branch_counts_where_the_cache_knows_it(
        self, into: Path, tmp_path: Path, sites: Sites, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        online = tmp_path / "online"
        online.mkdir()
        bring(HubSource(), "org/model", online, "main")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        sites.repos.clear()
        assert refused(HubSource(), "org/model", into, "v1.0").kind == "no-ref-in-cache"
        assert bring(HubSource(), "org/model", into, TWO).commit == TWO
        assert tree(into) == tree(online)

    def test_case_d07_renamed_gated_private_and_out_of_order(
        self, case: Case, sites: Sites, tmp_path: Path
    ) -> None:
        folder = case("D07")
        expected = json.loads((folder / "expected.json").read_text())
        results, final = [], []
        for number, answer in enumerate(json.loads((folder / "answers.json").read_text())):
            headers = {"X-Error-Code": answer["x-error-code"]} if "x-error-code" in answer else {}
            if "location" in answer:
                headers["Location"] = answer["location"]
                sites.repos[f"models{answer['location']}"] = sites.repos["models/org/model"]
            sites.answers[answer["ask"]] = (answer["status"], headers)
            into = tmp_path / f"brought-{number}"
            into.mkdir()
            try:
                found = bring(HubSource(), answer["ask"], into)
            except ReproError as error:
                results.append(error.kind)
                assert error.where == answer["ask"]  # noqa: PT017 - one of several ends
            else:
                results.append("renamed")
                final.append(found.resolved)
                assert found.requested == answer["ask"]
        assert results == expected["results"]
        assert final == expected["final_ids"]

    def test_data_sets_are_asked_for_as_such(self, sites: Sites, into: Path) -> None:
        sites.repos["datasets/org/corpus"] = Repo(commits={ONE: {"train.csv": b"a,b\n"}}, refs={"main": ONE})
        found = HubSource().materialise(
            Reference(text="org/corpus", revision=None, role="dataset"), into, Quiet()
        )
        assert found.commit == ONE
        assert tree(into) == {"train.csv": b"a,b\n"}

    def test_what_the_hub_calls_its_files_is_a_hint(self, into: Path) -> None:
        found = bring(HubSource(), "org/model", into, ONE)
        assert found.hints == {"config.json": "git blob 9e26dfeeb6e641a33dae4961196235bdb965b21b"}

    def test_a_file_whose_name_leads_out_of_its_folder(self, sites: Sites, into: Path) -> None:
        sites.repos["models/org/odd"] = Repo(commits={ONE: {"../../x": b"x"}}, refs={"main": ONE})
        assert refused(HubSource(), "org/odd", into).kind == "hub-malformed"
        assert not (into.parent.parent / "x").exists()

    def test_names_that_are_none(self, into: Path) -> None:
        assert refused(HubSource(), "org/model/extra", into).kind == "hub-malformed"

    def test_nobody_there(self, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        assert refused(HubSource(), "org/model", into).kind == "hub-unavailable"
