# Everything happens in a virtual environment of its own: no set-up beyond Python ≥ 3.11, pip, git and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: run test test-all lint docs clean

run: $(READY)
	$(BIN)/clearance reproduce bai2023 --out results/bai2023

test: lint
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow"

test-all: lint
	$(BIN)/pytest -n 2 --dist loadgroup

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/ruff format --check src tests benchmarks examples docs
	$(BIN)/pyright

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "clearance needs Python 3.11 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) results site .pytest_cache .ruff_cache build dist
