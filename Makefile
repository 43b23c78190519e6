# Everything runs from a bare python3 (3.11 or newer): make builds its own virtual environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TOOLS := .tools
WORKERS ?= 2
# Tests make and remove many small files, which waits for the disk: they use memory where there is room.
SCRATCH := $(shell test -w /dev/shm && df -Pk /dev/shm | awk 'NR == 2 && $$4 > 4000000 {print "/dev/shm"}')
PYTEST := $(if $(SCRATCH),TMPDIR=$(SCRATCH)) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# Without cached bytecode every worker compiles all modules again, which takes 11 seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-deep test-long check bench services java clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Relance needs Python 3.11 or newer; point PYTHON at one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Relance and its tools into $(VENV) (about a minute the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(INSTALLED) java ## Build a small lake in ./demo-lake, run a policy over it on Spark, and write a report
	@$(BIN)/python -m examples.demo

test: $(INSTALLED) java ## Run the everyday tests, about 7 minutes (select some with ARGS="-k name")
	@$(PYTEST) -m "not deep" $(ARGS)

test-deep: $(INSTALLED) java ## Run all other tests, about 20 minutes: large explorations, soak, Spark, S3 servers
	@$(PYTEST) -m deep $(ARGS)

test-long: $(INSTALLED) java ## Run the explorers and state machines with their largest budgets, for hours
	@RELANCE_PROFILE=long $(PYTEST) $(ARGS)

check: $(INSTALLED) ## Lint, check types and layering
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_layering.py

bench: $(INSTALLED) java ## Measure against the native directory namespace and print ratios
	@$(BIN)/python -m benchmarks

java: # Spark needs it; installs one where that is possible
	@scripts/java.sh

services: ## Install the servers that deep tests use: MinIO (Go), Azurite (npm), Chromium (apt-get)
	@mkdir -p $(TOOLS)/bin
	@test -x $(TOOLS)/bin/minio || { command -v go >/dev/null \
	  && echo "building MinIO (takes a few minutes)" \
	  && for attempt in 1 2 3; do \
	       GOBIN="$(CURDIR)/$(TOOLS)/bin" go install github.com/minio/minio@latest && break; done \
	  && test -x $(TOOLS)/bin/minio; } \
	  || echo "MinIO is not available here: its tests will be skipped"
	@test -x $(TOOLS)/node_modules/.bin/azurite-blob || { command -v npm >/dev/null \
	  && echo "installing Azurite" \
	  && npm install --silent --no-fund --no-audit --prefix $(TOOLS) azurite@3; } \
	  || echo "Azurite is not available here: its tests will be skipped"
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && echo "installing Chromium" \
	  && { apt-get install -y chromium || { apt-get update && apt-get install -y chromium; }; } >/dev/null 2>&1; } \
	  || echo "Chromium is not available here: browser tests will be skipped"

clean: ## Remove everything make built
	rm -rf $(VENV) $(TOOLS) demo-lake .pytest_cache .mypy_cache .ruff_cache .hypothesis
