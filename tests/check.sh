#!/bin/sh
# Lint, formatting and types of everything; the tools have to be on PATH.
set -eu
cd "$(dirname "$0")/.."
echo "ruff check"
ruff check --quiet .
echo "ruff format --check"
ruff format --quiet --check .
echo "mypy"
mypy --no-error-summary
