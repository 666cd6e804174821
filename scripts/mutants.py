"""Take one check at a time out of the verifier, and see whether a test notices.

Every `if` in the files below whose body refuses something (raises, or returns
a reason) becomes `if False`, one at a time, in a copy of the sources; then the
tests of `tests/attest` run until the first failure. A mutant that no test
notices is a check that is not tested, or one that another check covers.

    python scripts/mutants.py [FILE ...]    # prints a line per mutant and the score
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEAREST = {
    "attest/attached.py": "test_registry.py",
    "attest/certificate.py": "test_certificates.py",
    "attest/contents.py": "test_attacks_files.py",
    "attest/dsse.py": "test_dsse.py",
    "attest/elsewhere.py": "test_attacks_files.py",
    "attest/envelope.py": "test_attacks_bundle.py",
    "attest/keyring.py": "test_attacks_statement.py",
    "attest/limits.py": "test_attacks_statement.py",
    "attest/paths.py": "test_attacks_statement.py",
    "attest/policy.py": "test_policy_update.py",
    "attest/publickey.py": "test_attacks_bundle.py",
    "attest/replays.py": "test_replays.py",
    "attest/signature.py": "test_attacks_statement.py",
    "attest/statements.py": "test_attacks_statement.py",
    "attest/timestamp.py": "test_certificates.py",
    "attest/verify.py": "test_attacks_statement.py",
    "adapters/runfolder.py": "test_attacks_files.py",
    "bundle.py": "test_attacks_bundle.py",
    "statement.py": "test_attacks_statement.py",
    "strictjson.py": "test_strictjson.py",
    "trust.py": "test_attacks_statement.py",
}
"""Sources, and the tests that are likely to notice first."""

TESTS = (
    "test_attacks_bundle.py",
    "test_attacks_statement.py",
    "test_attacks_files.py",
    "test_replays.py",
    "test_certificates.py",
    "test_dsse.py",
    "test_verify.py",
    "test_strictjson.py",
    "test_keys.py",
    "test_policy_update.py",
    "test_registry.py",
)


def refuses(node: ast.If) -> bool:
    """Say whether a branch ends in a refusal."""
    last = node.body[-1]
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return "refuse" in ast.unparse(last.value.func)
    return isinstance(last, ast.Return) and last.value is not None


def mutants(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, condition and source for each check that can be taken out."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and refuses(node):
            test = node.test
            assert test.end_lineno is not None
            assert test.end_col_offset is not None
            start = starts[test.lineno - 1] + test.col_offset
            end = starts[test.end_lineno - 1] + test.end_col_offset
            condition = ast.unparse(test)
            walrus = next((n for n in ast.walk(test) if isinstance(n, ast.NamedExpr)), None)
            replacement = "False" if walrus is None else f"({ast.unparse(walrus)}) is NotImplemented"
            yield node.lineno, condition, (data[:start] + replacement.encode() + data[end:]).decode()


def survives(work: Path, first: str) -> bool:
    """Run the tests against the copy, the nearest first; a mutant survives where all of them pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not interop",
    ]
    command += [f"tests/attest/{name}" for name in sorted(TESTS, key=lambda name: name != first)]
    environment = {**os.environ, "PYTHONPATH": str(work), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(work)}
    return subprocess.run(command, cwd=work, env=environment, capture_output=True).returncode == 0


def main(names: list[str]) -> int:
    """Try every mutant and print the score."""
    caught, alive = 0, []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for part in ("repro", "tests/attest", "tests/adapters", "docs"):
            shutil.copytree(ROOT / part, work / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", work)
        if not survives(work, TESTS[0]):
            print("the tests fail without a mutation")
            return 1
        for name in names or NEAREST:
            path = work / "repro" / name
            whole = path.read_text(encoding="utf-8")
            for line, condition, source in mutants(path):
                path.write_text(source, encoding="utf-8")
                if survives(work, NEAREST[name]):
                    alive.append(f"repro/{name}:{line}: {condition}")
                else:
                    caught += 1
                print(
                    "alive " if alive and alive[-1].startswith(f"repro/{name}:{line}:") else "caught", end=" "
                )
                print(f"repro/{name}:{line}: {condition}", flush=True)
            path.write_text(whole, encoding="utf-8")
    print(f"{caught} of {caught + len(alive)} mutants caught", *alive, sep="\n")
    return 1 if alive else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
