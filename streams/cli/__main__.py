"""`python -m streams.cli`: the command line without its script."""

from __future__ import annotations

from streams.cli.main import main

main()
