"""`repro doctor`: what this machine is, and what it can do."""

from __future__ import annotations

import click

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.probe import engine_facts, probe
from repro.adapters.process import SubprocessRunner
from repro.cli import options
from repro.cli.console import print_json
from repro.doctor import examine
from repro.errors import EngineError
from repro.host import EngineFacts
from repro.report.machine import finding_lines, machine_lines

__all__ = ["command"]


def _engine() -> tuple[EngineFacts | None, str | None]:
    """Return the engine that a person on this machine would get, or why there is none."""
    try:
        with DockerEngine.connect() as engine:
            return engine_facts(engine.info()), None
    except EngineError as error:
        return None, str(error)


@click.command("doctor")
@click.option("--reveal", is_flag=True, help="Keep serial numbers, ids and names in the raw text of --json.")
@options.as_json
def command(reveal: bool, as_json: bool) -> None:
    """Say what this machine can do, and how to mend what it cannot.

    \b
    Example:  repro doctor
    Exit codes: 0 printed, 1 could not tell, 2 usage.
    """
    runner = SubprocessRunner()
    engine, trouble = _engine()
    facts = probe(runner, engine=engine, reveal=reveal)
    tools = [name for name in ("git",) if runner.which(name)]
    findings = examine(facts, engine_trouble=trouble, tools=tools)
    if as_json:
        print_json({"host": facts.tree(), "findings": [finding.tree() for finding in findings]})
        return
    for ok, line in finding_lines(findings):
        click.secho(line, fg=None if ok else "yellow")
    click.echo()
    for line in machine_lines(facts):
        click.echo(line)
