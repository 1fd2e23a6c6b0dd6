"""`python -m tests.simulation`: run schedules, replay one of them, or prove that mutations are found."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from tests.simulation.mutations.registry import all_mutations
from tests.simulation.schedules import Summary, processes, run_many, run_seed

_MUTATION_SCHEDULES = 2000


def main(
    seed: Annotated[int | None, typer.Option(help="Replay this schedule.")] = None,
    trace: Annotated[bool, typer.Option(help="With --seed: also every call of the lanes.")] = False,
    step: Annotated[bool, typer.Option(help="With --seed: wait for Enter after each line.")] = False,
    schedules: Annotated[int, typer.Option(help="How many schedules to run.")] = 10_000,
    minutes: Annotated[float | None, typer.Option(help="Run for so long, instead of a number.")] = None,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; one per core unless said.")] = None,
    mutation: Annotated[str | None, typer.Option(help="A deliberate fault, by name.")] = None,
    mutations: Annotated[
        bool, typer.Option(help="Look for each deliberate fault until it is found.")
    ] = False,
) -> None:
    """Simulate lanes under faults, deterministically: a seed decides everything that happens."""
    if seed is not None:
        raise typer.Exit(_replay(seed, mutation, trace=trace or step, step=step))
    if mutations:
        raise typer.Exit(_find_mutations(first, jobs))
    with processes(jobs) as pool:
        summary = run_many(
            pool,
            first,
            None if minutes is not None else schedules,
            seconds=None if minutes is None else minutes * 60,
            mutation=mutation,
            on_progress=_show,
        )
    print(f"\r{summary}")
    for failure in summary.failures[1:]:
        print(f"seed {failure.seed}: {failure.violations[0]}")
    if summary.failures:
        print(summary.failures[0])
    raise typer.Exit(1 if summary.failures else 0)


def _replay(seed: int, mutation: str | None, *, trace: bool, step: bool) -> int:
    def tell(line: str) -> None:
        print(line, end="" if step else "\n", flush=True)
        if step:
            input()

    world = run_seed(seed, mutation=mutation, on_note=tell, traces_calls=trace)
    for violation in world.violations:
        print(violation)
    print("nothing is wrong" if not world.violations else f"{len(world.violations)} violations")
    return 1 if world.violations else 0


def _find_mutations(first: int, jobs: int | None) -> int:
    missed = 0
    with processes(jobs) as pool:
        for name, function in all_mutations().items():
            summary = run_many(pool, first, _MUTATION_SCHEDULES, mutation=name, stop_at_first=True)
            if summary.failures:
                found = summary.failures[0]
                print(f"{name}: seed {found.seed}: {found.violations[0][:100]}", flush=True)
            else:
                missed += 1
                print(f"{name}: NOT FOUND in {summary.schedules} schedules. {function.__doc__}", flush=True)
    return 1 if missed else 0


def _show(summary: Summary) -> None:
    if sys.stderr.isatty():
        print(f"\r{summary.schedules:,} schedules, {len(summary.failures)} failed", end="", file=sys.stderr)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Otherwise sets of texts have another order in each process.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    typer.run(main)
