# Everything happens in a virtual environment of its own: no set-up beyond Python ≥ 3.11, pip, git and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: run test test-all lint docs graph clean

run: $(READY)
	$(BIN)/clearance reproduce bai2023 --out results/bai2023

test: lint
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

# The studies one after the other: some of them start clusters of their own.
test-all: test
	$(BIN)/pytest -m slow

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

# The import graph of the rooms; fails on an import upwards or sideways, on a cycle, on a file name used twice.
graph: $(READY)
	$(BIN)/python tools/import_graph.py --svg docs/figures/import-graph.svg

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs tools
	$(BIN)/ruff format --check src tests benchmarks examples docs tools
	$(BIN)/pyright

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "clearance needs Python 3.11 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) results site .pytest_cache .ruff_cache build dist
