# Needs GNU make and Python 3.11 or later; everything else is installed into .venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := requirements/dev.txt

# The first interpreter that is new enough and can make a virtual environment. `make PYTHON=python3.13 install` overrides it.
FITS := -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for python in python3 python python3.11 python3.12 python3.13 python3.14; do \
	command -v $$python >/dev/null 2>&1 && $$python $(FITS) && { echo $$python; break; }; done)
endif

# The type checkers want folders that exist.
CHECKED := $(wildcard src tests examples scripts benchmarks)
CHECKS := check-format check-lint check-mypy check-basedpyright check-imports check-surface check-text
# Two processes by default; `make test WORKERS=0` runs in one, as does a debugger's --pdb.
WORKERS ?= $(if $(findstring --pdb,$(ARGS)),0,2)
UV ?= uv

.PHONY: help interpreter same-python install test check $(CHECKS) format signatures mutants crash soak demo quickstart newsroom lock changelog-draft clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-16s %s\n", $$1, $$2 }'
	@echo '  ARGS="…" is passed on by test, mutants, crash, soak, demo, quickstart and newsroom.'

interpreter: ## Say which Python is used, or what is missing
	@if [ -z '$(PYTHON)' ] || ! $(PYTHON) $(FITS); then \
		echo "Byline needs Python 3.11 or later with its venv module; found: $$($(or $(PYTHON),python3) --version 2>&1 || true)." >&2; \
		echo "Install one (on Debian: python3 and python3-venv), or name it: make PYTHON=/path/to/python3.12 install" >&2; \
		exit 1; \
	fi
	@echo "$(PYTHON): $$($(PYTHON) --version)"

install: $(STAMP) ## Make .venv with the pinned tools and Byline itself, editable

$(BIN)/python:
	@$(MAKE) interpreter PYTHON='$(PYTHON)'
	$(PYTHON) -m venv $(VENV)

# A Python that was named is the one that is used, or make says why not.
same-python: | $(BIN)/python
ifneq ($(and $(PYTHON),$(filter command environment,$(origin PYTHON))),)
	@version='import sys; print(sys.version.split()[0], "of", sys.base_prefix)'; \
	named=$$($(PYTHON) -c "$$version") || exit; used=$$($(BIN)/python -c "$$version"); \
	if [ "$$named" != "$$used" ]; then \
		echo "$(VENV) was made with Python $$used, and PYTHON=$(PYTHON) is $$named." >&2; \
		echo "For that one, make it anew: make clean install PYTHON=$(PYTHON)" >&2; \
		exit 1; \
	fi
endif

# Installed over what is there, so that a change of the lock pulls nothing from under a running test; `make clean` starts anew.
$(STAMP): $(LOCK) pyproject.toml | same-python
	@echo 'Installing into $(VENV), about a minute …'
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test: $(STAMP) ## Run the tests; ARGS="tests/test_loop.py -k deny"
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

check: $(STAMP) ## Format, lint, types, architecture, public surface, forbidden text
	@$(MAKE) --keep-going $(CHECKS)

check-format: ; $(BIN)/ruff format --check .
check-lint: ; $(BIN)/ruff check .
check-mypy: ; $(BIN)/mypy $(CHECKED)
check-basedpyright: ; $(BIN)/basedpyright --pythonpath $(BIN)/python $(CHECKED)
check-imports: ; $(BIN)/lint-imports
check-surface: ; $(BIN)/python scripts/signatures.py --check
check-text: ; $(BIN)/python scripts/forbidden_text.py

format: $(STAMP) ## Format, and mend what ruff can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

signatures: $(STAMP) ## Rewrite docs/public-api.txt
	$(BIN)/python scripts/signatures.py

mutants: $(STAMP) ## Break each promise on purpose, and see a test notice; ARGS="--only P3"
	$(BIN)/python scripts/mutants.py $(ARGS)

crash: $(STAMP) ## Let planned faults strike workers, people and databases, round by round; ROUNDS=200 SEED=7
	$(BIN)/python -m tests.crash.rounds $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(STAMP) ## Let four workers on PostgreSQL settle 2,000 runs while one is killed every few seconds; SEED=7
	$(BIN)/python -m tests.crash.rounds.soak $(if $(SEED),--seed $(SEED)) $(ARGS)

demo: $(STAMP) ## Play the newsroom: an agent writes, you decide; ARGS=--yes, ARGS=--crash, MODEL=openai:NAME
	$(BIN)/python -m examples.newsroom $(if $(findstring command,$(origin MODEL)),--model '$(MODEL)') $(ARGS)

quickstart: $(STAMP) ## Play the smallest site: three tools in one file
	$(BIN)/python -m examples.quickstart $(ARGS)

newsroom: $(STAMP) ## Serve the newsroom's website; ARGS="--port 8001"
	$(BIN)/python -m examples.newsroom.web $(ARGS)

lock: ## Pin the development dependencies anew (needs uv); ARGS="--upgrade"
	@command -v $(UV) >/dev/null || { echo 'Locking needs uv: install it, or name it with UV=/path/to/uv.' >&2; exit 1; }
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --custom-compile-command 'make lock' --quiet -o $(LOCK) $(ARGS)

changelog-draft: $(STAMP) ## Show the changelog of the next release
	$(BIN)/towncrier build --draft --version next

clean: ## Remove .venv and what the tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
