"""`runlane demo`: a real Kafka, a worker, an executor and a few hundred runs, to the proof."""

from __future__ import annotations

from typing import Annotated

import typer

from streams import topic_admin
from streams.broker import local_broker
from streams.cli.client_work import interruptible, quiet_kafka
from streams.cli.session import session_of
from streams.demo.plan import FEWEST_RUNS, MOST_RUNS
from streams.user_errors import UserError

app = typer.Typer()


@app.command()
def demo(
    context: typer.Context,
    runs: Annotated[int, typer.Option(min=FEWEST_RUNS, max=MOST_RUNS, help="How many runs to submit.")] = 300,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Do not kill the worker in the middle.")] = False,
    delete_topics: Annotated[
        bool, typer.Option("--delete-topics", help="Delete the demo's topics at the end.")
    ] = False,
    stop_broker: Annotated[
        bool, typer.Option("--stop-broker", help="Stop the local broker at the end.")
    ] = False,
) -> None:
    """See it work: real runs on a real Kafka, a worker killed in the middle, and the account at the end.

    Starts the local broker unless it runs or --brokers names another, makes topics under a prefix of its own,
    starts a worker and an executor, and submits runs over the 3,376 airports of vega_datasets: each finds how
    far its airports are from their neighbours. Some have unusable rows and fail. The closing table is computed
    by reading the topics; exits 1 when anything is lost, applied twice or out of order.
    """
    # Only this command needs them, and every command has to start fast.
    from streams.demo.airports import all_airports
    from streams.demo.closing_view import as_json, closing_view, where_to_look
    from streams.demo.show import run_demo

    session = session_of(context)
    quiet_kafka(session)
    all_airports()
    output, step = session.output, session.output.step
    is_local = not session.settings.brokers
    brokers = session.settings.brokers or local_broker.up(session.settings, step).address
    try:
        outcome = interruptible(
            lambda: run_demo(
                session.settings, brokers, runs=runs, kill=not no_kill, console=output.messages, step=step
            )
        )
        output.result(as_json(outcome), lambda: closing_view(outcome))
        if delete_topics:
            step(f"deleting the topics {outcome.settings.name('*')}")
            topic_admin.delete(outcome.settings)
        else:
            output.messages.print(where_to_look(outcome, local_broker=is_local))
    finally:
        if is_local and stop_broker:
            step("stopping the local broker")
            local_broker.down(session.settings)
    if is_local and not stop_broker:
        output.messages.print("The local broker goes on running: [bold]runlane broker down[/bold] stops it.")
    if outcome.problems:
        raise UserError(f"The account does not add up: {'; '.join(outcome.problems)}.", "please report this")
