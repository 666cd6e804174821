# Each target does all its own set-up on a fresh machine and skips what is done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all lint engine clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25'
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

engine: $(READY)  ## find or start a container engine, and make the base image
	@scripts/prepare

demo: $(READY)  ## repro.yaml to a signed run, verified and replayed
	@scripts/prepare
	@scripts/demo

test: lint  ## style, types, and every test but the slow ones
	@scripts/prepare
	$(BIN)/pytest -m 'not slow'

test-all: lint  ## style, types, and every test, also those that need training frameworks
	@scripts/prepare
	$(BIN)/python -m pip install --quiet --editable '.[dev,frameworks]'
	$(BIN)/pytest

lint: $(READY)  ## style and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## forget what was installed here
	rm -rf $(VENV) .demo
