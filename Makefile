# Every target does its own set-up; `make venv` does nothing once it is done.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell uv --version >/dev/null 2>&1 && echo uv)
KILLS ?= 200
SEEDS ?= 20
SECONDS ?= 60
# Most tests wait for servers most of the time. Each process has servers of its own.
AT_ONCE ?= --numprocesses 2 --dist loadfile

# Downloads trust what this machine trusts: uv would bring certificates of its own.
CERTIFICATES := $(wildcard /etc/ssl/certs/ca-certificates.crt)
ifneq ($(CERTIFICATES),)
export SSL_CERT_FILE ?= $(CERTIFICATES)
endif

.PHONY: help venv demo test test-fast check format crash model bench clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo              the main job on embedded servers, in under a minute'
	@echo 'make test              check, every test against every server, coverage: what CI runs'
	@echo 'make test-fast         what needs only Python wheels, in under two minutes'
	@echo 'make check             format, lint, types, layers'
	@echo 'make format            put files into the form that check wants'
	@echo 'make crash KILLS=200   relays killed at random points: counts lost, duplicates, out of order'
	@echo 'make model SEEDS=20 SECONDS=60   random worlds, faults and commands: every promise is checked'
	@echo 'make bench             every benchmark; results in benchmarks/results'

venv: $(VENV)/installed

$(BIN)/python:
ifeq ($(UV),uv)
	uv venv --quiet --python '>=3.11' $(VENV)
else
	@$(PYTHON) -m ensurepip --version >/dev/null 2>&1 \
	|| { apt-get update -qq && apt-get install -qq -y python3-venv >/dev/null; } \
	|| { echo 'Install the package python3-venv first.' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
endif

$(VENV)/installed: pyproject.toml tests/sinks_plugin/pyproject.toml | $(BIN)/python
ifeq ($(UV),uv)
	uv pip install --quiet --python $(BIN)/python --editable . --editable tests/sinks_plugin --group dev
else
	$(BIN)/python -m pip install --quiet --editable . --editable tests/sinks_plugin --group dev
endif
	@touch $@

demo: venv
	$(BIN)/relay demo

test: check
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(AT_ONCE)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-fast: venv
	$(BIN)/pytest --numprocesses 3 --dist loadfile -m 'not full' tests/unit tests/contract tests/integration

check: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crash: venv
	$(BIN)/python -m tests.crash --kills $(KILLS)

model: venv
	$(BIN)/python -m tests.model --seeds $(SEEDS) --seconds $(SECONDS)

bench: venv
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .coverage* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
