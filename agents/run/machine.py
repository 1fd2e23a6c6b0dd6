"""The run machine: which rule decides which command, and which timer does what (DESIGN 4).

One entry per command of `run-commands`; the rules are in the modules that the entries name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.machine import Decision, FiredTimer, Request, View
from agents.run import (
    call_listing,
    calls,
    child_results,
    ending,
    event_log,
    eviction,
    inspection,
    instances,
    launch,
    lifecycle,
    sessions,
    signals,
    traces,
    waits,
)
from agents.run.refusals import TERMINAL, recall_terminal
from schemas import call_commands, child_commands, launch_commands, session_commands, trace_commands
from schemas import run_commands as commands
from schemas.inspect_commands import RunInspect
from schemas.signal_commands import RunSignal

RULES: dict[type[Any], Callable[[Request[Any], View], Decision]] = {
    commands.RunSubmit: lifecycle.submit,
    commands.RunStatus: lifecycle.status,
    commands.EventsAppend: event_log.append,
    commands.EventsList: event_log.list_events,
    commands.TerminalSet: ending.set_terminal,
    commands.TerminalGet: ending.get_terminal,
    commands.RunCancel: ending.cancel,
    commands.RunFinish: eviction.finish,
    child_commands.ChildTerminalSet: child_results.set_child,
    child_commands.ChildTerminalGet: child_results.get_child,
    child_commands.ChildTerminalAwait: child_results.await_child,
    call_commands.CallClaim: calls.claim,
    call_commands.CallRenew: calls.renew,
    call_commands.CallPublish: calls.publish,
    call_commands.CallAwait: calls.await_call,
    call_commands.CallDebug: call_listing.list_calls,
    launch_commands.RetryPut: launch.put_retry,
    launch_commands.RetryClaim: launch.claim_retry,
    launch_commands.LaunchPut: launch.put_launch,
    launch_commands.InstancePut: instances.put_instance,
    launch_commands.InstanceGet: instances.get_instance,
    session_commands.SessionsPut: sessions.put_sessions,
    session_commands.SessionsGet: sessions.get_sessions,
    trace_commands.TraceAdd: traces.add_trace,
    trace_commands.TraceList: traces.list_traces,
    RunSignal: signals.signal,
    RunInspect: inspection.inspect,
}

TIMERS: dict[str, Callable[[FiredTimer, View], Decision]] = {
    waits.TIMER: waits.time_out,
    waits.LEASE: calls.pass_on,
    launch.EXPIRE_RETRY: launch.expire,
    sessions.EXPIRE_SESSIONS: sessions.expire,
    instances.EXPIRE_INSTANCE: instances.expire,
    eviction.EVICT: eviction.evict,
    eviction.SWEEP: eviction.sweep,
    eviction.FORGET: eviction.forget,
}
"""By the timer's name, or what stands before the colon in it."""

RECALLED: dict[str, Callable[[str, str, View], Any]] = {
    lifecycle.RUN_ID: lambda _, run_id, view: run_id,
    TERMINAL: lambda _, run_id, view: recall_terminal(run_id, view),
    calls.CALL: calls.recall,
    child_results.CHILD: child_results.recall,
    launch.PARAMS: launch.recall,
}
"""What answers hold by reference: the name, or what stands before the colon in it; takes what stands behind it."""


class RunMachine:
    """The rules of runs, behind the contract `agents.machine.Machine`."""

    def decide(self, request: Request[Any], view: View) -> Decision:
        """What a command does; refusals are answers, nothing is raised for bad input."""
        return RULES[type(request.command)](request, view)

    def fire(self, timer: FiredTimer, view: View) -> Decision:
        """What a timer does; a name without a rule does nothing."""
        rule = TIMERS.get(timer.name.partition(":")[0])
        return rule(timer, view) if rule is not None else Decision()

    def recall(self, what: str, key: str, view: View) -> Any:
        """The present value of what an answer holds by reference; None once it is evicted."""
        kind, _, name = what.partition(":")
        recalled = RECALLED.get(kind)
        if recalled is None:
            raise ValueError(f"answers of runs hold no {what!r} by reference")
        return recalled(name, key, view)
