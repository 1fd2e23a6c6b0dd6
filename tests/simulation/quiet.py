"""Whether a world has come to rest: everything that was sent is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.lane_runner import LaneState

if TYPE_CHECKING:
    from tests.simulation.world import World


def left_to_do(world: World) -> str | None:
    """What is not done yet; None when every command is processed, every timer that is due fired, every lane open."""
    if world.group.is_rebalancing:
        return "the group rebalances"
    if any(transaction.pending for transaction in world.kafka.transactions.values()):
        return "markers are under way"
    for partition in range(world.partitions):
        owners = world.owners(partition)
        if len(owners) != 1:
            return f"lane {partition} has {len(owners)} owners"
        (process,) = owners
        runner = process.host._runners[partition]
        if runner.state is not LaneState.SERVING or runner.is_busy:
            return f"lane {partition} of {process.name} is {runner.state}: {runner.reason}"
        for topic in world.rules.families:
            committed = [r for r in world.kafka.log((topic, partition)).records if r.is_readable]
            if committed and runner.lane.watermark(topic) < committed[-1].offset:
                return (
                    f"lane {partition} of {process.name} is at {runner.lane.watermark(topic)} "
                    f"of {topic}, whose last command is {committed[-1].offset}"
                )
        if runner.lane.next_due <= process.node.now():
            return f"a timer of lane {partition} is overdue by {process.node.now() - runner.lane.next_due} ms"
    return None
