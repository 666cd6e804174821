"""Runs inside the private tool environment: pip and pip-tools, told what to resolve for and where to look.

Neither tool can resolve for another machine (markers and `pip-compile` follow the
interpreter they run on) or tie a package to one index. Both are pinned, so this
file reaches into them: it sets the target's tags and markers, asks each index
apart, and notes every file an index offers, with the hash it publishes.

Usage: `shim.py LIB prepare|compile|report|fetch REQUEST.json`, where LIB is the
folder with the tools, or `-` for the pip that is there. It never imports the rest
of `repro`. Lines on stdout that start with `@` are JSON events for the parent.
"""

from __future__ import annotations

import functools
import json
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["Survey", "configure", "main"]

WHERE_TO_FETCH = frozenset(
    {
        "cert",
        "client-cert",
        "constraint",
        "default-timeout",
        "extra-index-url",
        "find-links",
        "index-url",
        "keyring-provider",
        "no-index",
        "no-proxy-env",
        "proxy",
        "retries",
        "timeout",
        "trusted-host",
    }
)
"""The part of the machine's pip configuration that says where to fetch from. Nothing else is taken."""


def say(**event: Any) -> None:
    """Tell the parent something."""
    sys.stdout.write("@" + json.dumps(event) + "\n")
    sys.stdout.flush()


def configure(cache: str) -> None:
    """Replace pip's configuration by the machine's answer to where to fetch from, and our own settings."""
    from pip._internal.configuration import Configuration

    loaded = Configuration(isolated=False)
    loaded.load()
    found: dict[str, str] = {}
    sections = ("global", "install", ":env:")
    values: dict[str, str] = {}
    for name, held in loaded.items():  # newer pips give settings by file, older ones give settings
        values.update(held if isinstance(held, dict) else {name: held})
    for section in sections:
        for key, value in values.items():
            place, _, name = key.partition(".")
            if place == section and name in WHERE_TO_FETCH:
                found[name] = value
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        del os.environ[name]
    for name, value in found.items():
        os.environ["PIP_" + name.upper().replace("-", "_")] = value
    os.environ |= {
        "PIP_CACHE_DIR": cache,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_ONLY_BINARY": ":all:",
        "PIP_PROGRESS_BAR": "off",
    }


class Survey:
    """Asks each index apart and remembers what it offers.

    Args:
        request: `indexes`: list of `{name, url, flat, packages}` declared by the project, where `packages`
            binds those names to that index; `replaces_default`: whether the machine's default is left out.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.indexes = request.get("indexes", [])
        self.default = not request.get("replaces_default", False)
        self.bound = {name: index for index in self.indexes for name in index["packages"]}
        self.offers: dict[str, dict[str, dict[str, Any]]] = {}
        self.unbuilt: dict[str, set[str]] = {}
        """File names of source distributions that were passed over, by package."""

    def sources(self, name: str, machine: Any) -> Iterator[tuple[str, Any]]:
        """Yield the indexes that may serve a package, each with pip's search scope for it alone."""
        from pip._internal.models.search_scope import SearchScope

        if (index := self.bound.get(name)) is not None:
            chosen = [index]
        else:
            if self.default:
                yield "default", machine
            chosen = [index for index in self.indexes if not index["packages"]]
        for index in chosen:
            place = [index["url"]]
            yield (
                index["name"],
                SearchScope.create(
                    find_links=place if index["flat"] else [],
                    index_urls=[] if index["flat"] else place,
                    no_index=False,
                ),
            )

    def note(self, name: str, index: str, link: Any) -> None:
        """Remember a wheel that an index offers for a package. An index's own address is among its links."""
        if not link.is_wheel:
            return
        self.offers.setdefault(name, {})[f"{index} {link.url_without_fragment}"] = {
            "index": index,
            "url": link.url_without_fragment,
            "filename": link.filename,
            "sha256": link.hash if link.hash_name == "sha256" else None,
            "yanked": link.yanked_reason,
        }

    def note_source(self, name: str, link: Any) -> None:
        """Remember a source distribution that an index offers."""
        if not link.is_wheel and link.filename.endswith((".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz")):
            self.unbuilt.setdefault(name, set()).add(link.filename)

    def about(self, compiled: str) -> dict[str, list[dict[str, Any]]]:
        """Return the noted files of every package pinned in a compiled text."""
        from pip._vendor.packaging.utils import canonicalize_name

        names = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==|@)", compiled, re.MULTILINE)
        return {name: self.offered(name) for name in map(canonicalize_name, names)}

    def offered(self, name: str) -> list[dict[str, Any]]:
        """Return the noted files of one package."""
        return list(self.offers.get(name, {}).values())


def _put(owner: Any, name: str, value: Any) -> None:
    """Replace a part of pip or pip-tools, which must be there."""
    getattr(owner, name)
    setattr(owner, name, value)


class _Noted:
    """One of pip's link sources; tells the survey what it yields."""

    def __init__(self, source: Any, note: Callable[[Any], None]) -> None:
        self.link = source.link
        self._source = source
        self._note = note

    def page_candidates(self) -> Iterator[Any]:
        for candidate in self._source.page_candidates():
            self._note(candidate.link)
            yield candidate

    def file_links(self) -> Iterator[Any]:
        for link in self._source.file_links():
            self._note(link)
            yield link


def _tell_silence(link: Any, reason: Any, **_: Any) -> None:
    """Report an index that gave no page. pip skips it, and takes the package from wherever else it may be.

    404 says that the index has no such package; so does 403, where object storage serves the index.
    """
    status = getattr(getattr(reason, "response", None), "status_code", None)
    say(silent=link.redacted_url, why=str(reason), absent=status in (403, 404))


def _ask_indexes_apart(survey: Survey) -> None:
    from pip._internal.index import collector
    from pip._internal.index.collector import CollectedSources, LinkCollector
    from pip._internal.index.package_finder import LinkEvaluator
    from pip._vendor.packaging.utils import canonicalize_name

    ask = LinkCollector.collect_sources
    judge = LinkEvaluator.evaluate_link

    def collect(asking: Any, project_name: str, candidates_from_page: Any) -> Any:
        name = canonicalize_name(project_name)
        pages: list[Any] = []
        flat: list[Any] = []
        for index, scope in survey.sources(name, asking.search_scope):
            alone = LinkCollector(session=asking.session, search_scope=scope)
            found = ask(alone, project_name, candidates_from_page)
            note = functools.partial(survey.note, name, index)
            places = [source.link for source in (*found.index_urls, *found.find_links) if source is not None]
            used = [link is None or asking.session.is_secure_origin(link) for link in places]
            if index != "default" and not any(used):
                say(silent=index, why="pip does not use this index", absent=False)
            pages += [_Noted(source, note) for source in found.index_urls if source is not None]
            flat += [_Noted(source, note) for source in found.find_links if source is not None]
        return CollectedSources(find_links=flat, index_urls=pages)

    def evaluate(evaluator: Any, link: Any) -> Any:
        survey.note_source(canonicalize_name(evaluator.project_name), link)
        return judge(evaluator, link)

    _put(LinkCollector, "collect_sources", collect)
    _put(LinkEvaluator, "evaluate_link", evaluate)
    _put(collector, "_handle_get_simple_fail", _tell_silence)


def _python(target: dict[str, Any]) -> Any:
    from pip._internal.models.target_python import TargetPython

    major, minor, *patch = (int(part) for part in re.findall(r"\d+", target["python"])[:3])
    # Where only the minor release is known: a late patch release, so that no lower bound leaves a package
    # out; the image's pip says so where its own is older. The markers name the first one, for upper bounds.
    return TargetPython(
        platforms=target["platforms"],
        py_version_info=(major, minor, patch[0] if patch else 99),
        abis=[f"cp{major}{minor}"],
        implementation="cp",
    )


def _resolve_for(target: dict[str, Any]) -> None:
    """Set the tags, Python version and markers of the target, which need not be this machine's."""
    from pip._internal.cli.req_command import RequirementCommand
    from pip._internal.index.package_finder import PackageFinder
    from pip._internal.resolution.resolvelib import factory
    from pip._vendor.packaging import markers

    python = _python(target)

    create = PackageFinder.create.__func__  # type: ignore[attr-defined]
    make = RequirementCommand.make_resolver.__func__  # type: ignore[attr-defined]

    def create_for_target(cls: Any, *arguments: Any, **options: Any) -> Any:
        return create(cls, *arguments, **{**options, "target_python": python})

    def make_for_target(cls: Any, *arguments: Any, **options: Any) -> Any:
        return make(cls, *arguments, **{**options, "py_version_info": python.py_version_info})

    _put(PackageFinder, "create", classmethod(create_for_target))
    _put(RequirementCommand, "make_resolver", classmethod(make_for_target))
    _put(factory, "get_supported", python.get_sorted_tags)
    _put(markers, "_cached_default_environment", lambda: target["markers"])


def _take_published_hashes() -> None:
    """List the hashes that the indexes publish, and download nothing to compute others."""
    from piptools.repositories.pypi import PyPIRepository

    def hashes(repository: Any, requirement: Any) -> set[str]:
        links = [candidate.link for candidate in repository._get_matching_candidates(requirement)]
        return {f"sha256:{link.hash}" for link in links if link.hash_name == "sha256"}

    _put(PyPIRepository, "_get_req_hashes", hashes)


def prepare_tools(request: dict[str, Any], _survey: Survey) -> int:
    """Fetch the pinned tools, and install them beside everything else."""
    from pip._internal.cli.main import main as pip

    # A machine's constraints are for projects; our own tools are pinned already.
    os.environ.pop("PIP_CONSTRAINT", None)
    shared = ["--quiet", "--no-deps", "--require-hashes", f"--requirement={request['requirements']}"]
    return pip(["download", *shared, f"--dest={request['wheels']}"]) or pip(
        ["install", *shared, "--no-index", f"--find-links={request['wheels']}", f"--target={request['lib']}"]
    )


def compile_inputs(request: dict[str, Any], survey: Survey) -> int:
    """Run pip-compile; write the pins, and what was offered for them."""
    from pip._internal.exceptions import PipError
    from piptools.scripts.compile import cli

    _take_published_hashes()
    arguments = [
        "--verbose",
        "--no-config",
        "--no-header",
        "--no-emit-options",
        "--generate-hashes",
        "--allow-unsafe",
        "--strip-extras",
        "--annotation-style=split",
        f"--cache-dir={request['cache']}/pip-tools",
        f"--output-file={request['compiled']}",
    ]
    machine = os.environ.get("PIP_CONSTRAINT", "").split()
    arguments += [f"--constraint={path}" for path in [*request["constraints"], *machine]]
    if request["pre"]:
        arguments.append("--pre")
    if request["upgrade"] is not None:
        arguments += [f"--upgrade-package={name}" for name in request["upgrade"]] or ["--upgrade"]
    try:
        code = cli.main([*arguments, *request["requirements"]], standalone_mode=False)
    except SystemExit as stop:
        code = stop.code
    except PipError as error:
        sys.stdout.write(f"{error}\n")
        code = 1
    if code:
        return int(code)
    compiled = Path(request["compiled"])
    text = compiled.read_text(encoding="utf-8")
    for path in machine:
        text = text.replace(f"    #   -c {path}\n", "")
    compiled.write_text(text, encoding="utf-8")
    offers = survey.about(text)
    Path(request["offers"]).write_text(json.dumps(offers), encoding="utf-8")
    return 0


def report_files(request: dict[str, Any], _survey: Survey) -> int:
    """Let pip resolve the same inputs, held to the pins, and report the file it takes for each package."""
    from pip._internal.cli.main import main as pip

    arguments = ["install", "--quiet", "--dry-run", "--ignore-installed", f"--report={request['report']}"]
    if request["pre"]:
        arguments.append("--pre")
    for path in [*request["constraints"], request["pins"]]:
        arguments += ["--constraint", path]
    for path in request["requirements"]:
        arguments += ["--requirement", path]
    return pip(arguments)


def locate_files(request: dict[str, Any], survey: Survey) -> int:
    """Look up, on the same indexes, where the locked wheels are served now."""
    from pip._internal.commands import create_command

    command: Any = create_command("install")
    options, _ = command.parse_args([])
    finder = command._build_package_finder(options, command._build_session(options))
    for name in request["names"]:
        finder.find_all_candidates(name)
    offers = {name: survey.offered(name) for name in request["names"]}
    Path(request["offers"]).write_text(json.dumps(offers), encoding="utf-8")
    return 0


def fetch_files(request: dict[str, Any], survey: Survey) -> int:
    """Download in parallel; say `done` or `failed` for each file."""
    from pip._internal.commands import create_command

    def session() -> Any:
        command: Any = create_command("install")
        options, _ = command.parse_args(["--no-cache-dir"])
        made = command._build_session(options)
        # pip sends the credentials in an index's address to the files that the index links to.
        made.auth.index_urls = [*(made.auth.index_urls or []), *(index["url"] for index in survey.indexes)]
        return made

    # By path: nothing of this package is importable in here.
    place = Path(__file__).with_name("transfer.py")
    runpy.run_path(str(place))["fetch_all"](request["files"], session, say)
    return 0


COMMANDS: dict[str, Callable[[dict[str, Any], Survey], int]] = {
    "compile": compile_inputs,
    "fetch": fetch_files,
    "locate": locate_files,
    "prepare": prepare_tools,
    "report": report_files,
}


def main(lib: str, command: str, request_file: str) -> int:
    """Carry out one request."""
    if lib != "-":
        sys.path.insert(0, lib)
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    configure(request["cache"] + "/pip")
    survey = Survey(request)
    if "target" in request:
        _ask_indexes_apart(survey)
        _resolve_for(request["target"])
    code = COMMANDS[command](request, survey)
    if code:
        say(unbuilt={name: sorted(files) for name, files in survey.unbuilt.items()})
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
