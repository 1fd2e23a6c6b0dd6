# Each target makes its virtual environment first: a machine needs Python 3.11 or newer, and nothing else.
#   make demo            a real Kafka, a worker, an executor and a few hundred runs, to the closing table
#   make test            lint, types and all tests (ARGS="tests/unit -x" for some of them)
#   make lint            lint and types only
#   make bench           the benchmark

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
	$$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
BIN := $(VENV)/bin

# Modules are compiled when they are first imported (most that is installed never is), and that is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint bench clean

demo: $(VENV)/.with-demo
	@$(BIN)/runlane demo $(ARGS)

test: lint
	@PATH="$(CURDIR)/$(BIN):$$PATH" pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.with-dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tests/check.sh

bench: $(VENV)/.with-bench
	@$(BIN)/runlane bench $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one by: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "making a virtual environment in $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.with-demo: EXTRAS = broker,demo
$(VENV)/.with-dev: EXTRAS = dev
$(VENV)/.with-bench: EXTRAS = bench
$(VENV)/.with-%: pyproject.toml | $(VENV)/bin/python
	@echo "installing runlane[$(EXTRAS)] into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$(EXTRAS)]'
	@touch $@
