"""`runlane rates`: store rules from a file, and see how a bucket stands."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from schemas.rate_results import PeekResult, RulesGetResult, RuleUse
from streams.cli.arguments import TimeoutOption, sendable
from streams.cli.client_work import with_client
from streams.cli.output import duration, facts, table, time_left
from streams.cli.session import session_of
from streams.client import RunlaneClient
from streams.rate_files import read_rules
from streams.terminal_text import one_line
from streams.user_errors import UserError

app = typer.Typer(help="Rate limits: store rules, see how buckets stand.", no_args_is_help=True)

BucketArgument = Annotated[
    str, typer.Argument(metavar="BUCKET", help="The bucket's id, `<orgId>:<provider>`.", callback=sendable)
]


@app.command()
def apply(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML: `buckets:`, bucket ids, and their rules.")
    ],
    check: Annotated[bool, typer.Option("--check", help="Only say whether the file is right.")] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Store the rules of the buckets in a file, for commands that name none. Buckets beside them keep theirs.

    `runlane rates apply rules.yaml`
    """
    session = session_of(context)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}.", "name a YAML file", exit_code=2) from None
    buckets = read_rules(text, str(file))
    if check:
        session.output.result(
            {"buckets": len(buckets), "applied": []}, lambda: f"{len(buckets)} buckets, nothing is wrong"
        )
        return

    async def work(client: RunlaneClient) -> list[dict[str, Any]]:
        applied = []
        for bucket, rules in buckets.items():
            put = await client.put_rate_rules(bucket, rules, timeout=timeout)
            applied.append({"bucketId": bucket, "version": put.version, "changed": put.changed})
        return applied

    applied = with_client(session, work, timeout)
    session.output.result(
        {"buckets": len(buckets), "applied": applied},
        lambda: table(
            ("bucket", "version", ""),
            (
                (
                    Text(one_line(each["bucketId"])),
                    each["version"],
                    "stored" if each["changed"] else "as before",
                )
                for each in applied
            ),
        ),
    )


@app.command()
def rules(context: typer.Context, bucket: BucketArgument, timeout: TimeoutOption = None) -> None:
    """Show the rules that are stored for a bucket."""
    session = session_of(context)
    stored = with_client(session, lambda client: client.get_rate_rules(bucket, timeout=timeout), timeout)
    session.output.result(stored, lambda: rules_view(stored))


@app.command()
def show(
    context: typer.Context,
    bucket: BucketArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew every second, until Ctrl-C.")] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Show how a bucket stands: what its rules have left, cooldown, leases, who waits, and what was lost.

    With --json and --watch, one JSON object per line.
    """
    session = session_of(context)
    output = session.output

    async def work(client: RunlaneClient) -> PeekResult:
        seen = await client.peek_permits(bucket, timeout=timeout)
        if not watch:
            return seen
        if output.as_json:
            while True:
                output.item(seen, lambda: "")
                await asyncio.sleep(1)
                seen = await client.peek_permits(bucket, timeout=timeout)
        with Live(bucket_view(seen, _now()), console=output.console, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(1)
                seen = await client.peek_permits(bucket, timeout=timeout)
                live.update(bucket_view(seen, _now()), refresh=True)

    seen = with_client(session, work, timeout)
    output.result(seen, lambda: bucket_view(seen, _now()))


def bucket_view(seen: PeekResult, now: float) -> RenderableType:
    """How a bucket stands; `now` in ms since the epoch."""
    cooldown = seen.cooldown_until - now
    summary = facts(
        {
            "an acquire gets": "a permit" if seen.granted else f"nothing for {time_left(seen.wait_ms)}",
            "cooldown": f"{time_left(cooldown)} left" if cooldown > 0 else "none",
            "waiting": f"{seen.waiting:,}",
            "leases": f"{seen.leases:,}",
            "lost blocks": f"{seen.lost_leases:,} with {seen.lost_permits:,} permits"
            if seen.lost_leases
            else "none",
        }
    )
    if not seen.rules:
        return Group(
            summary,
            Text("no rule counts anything, and none is stored: commands have to name rules", style="dim"),
        )
    columns = ("rule", "kind", "window", "used", "limit", "in blocks", "in leases", "comes back")
    return Group(summary, table(columns, (_row(rule, now) for rule in seen.rules)))


def rules_view(stored: RulesGetResult) -> RenderableType:
    """The stored rules of a bucket."""
    if not stored.rules:
        return Text("no rules are stored for this bucket")
    columns = ("rule", "kind", "window", "limit", "max concurrency")
    rows = (
        (
            Text(one_line(rule.rule_id)),
            rule.kind,
            duration(rule.window_ms),
            f"{rule.requests_per_window:,}",
            rule.max_concurrency,
        )
        for rule in stored.rules
    )
    return Group(table(columns, rows), Text(f"version {stored.version}", style="dim"))


def _row(rule: RuleUse, now: float) -> tuple[object, ...]:
    style = "red" if rule.used >= rule.limit else "yellow" if 5 * rule.used >= 4 * rule.limit else "green"
    held = f"{rule.held:,} of {rule.max_concurrency:,}" if rule.max_concurrency else ""
    left = max(0.0, rule.resets_at - now)
    return (
        Text(one_line(rule.rule_id)),
        rule.kind,
        duration(rule.window_ms),
        Text(f"{rule.used:,}", style=style),
        f"{rule.limit:,}",
        f"{rule.reserved:,}" if rule.reserved else "",
        held,
        f"in {time_left(left)}" if left else "",
    )


def _now() -> float:
    return time.time() * 1000
