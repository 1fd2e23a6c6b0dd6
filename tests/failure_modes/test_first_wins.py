"""Two win what only one can have, since both read before either wrote.

Elsewhere: a check and a write in two steps; a limit that is counted, compared and then raised.
"""

from __future__ import annotations

import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.contract.bare_client import BareClient, new_id
from tests.worker_process import WorkerProcess

CLIENTS = 6
RUNS = 10


def race(
    broker: str, prefix: str, client: BareClient, type_: str, fields: list[dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Every client sends its command for every run, all at the same time; run -> the answers, by client."""
    rivals = [BareClient(broker, prefix, client.partitions) for _ in range(CLIENTS)]
    runs = [new_id("race") for _ in range(RUNS)]

    def send(number: int) -> list[bytes]:
        return [rivals[number].ask(type_, run_id, **fields[number]).correlation_id for run_id in runs]

    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            asked = list(pool.map(send, range(CLIENTS)))
    finally:
        for rival in rivals:
            rival.close()
    answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for ids in asked:
        for run_id, correlation_id in zip(runs, ids, strict=True):
            answers[run_id].append(client.reply_record(correlation_id).json())
    return answers


def test_one_end_wins_and_all_others_are_told_which(
    broker: str, prefix: str, worker: WorkerProcess, client: BareClient
) -> None:
    ends = [{"status": "completed", "result": number} for number in range(CLIENTS)]
    for run_id, answers in race(broker, prefix, client, "terminal.set", ends).items():
        winner = client.terminal(run_id)
        assert sum(answer["ok"] for answer in answers) == 1
        for number, answer in enumerate(answers):
            told = answer["result"] if answer["ok"] else answer["error"]
            assert told["terminal"] == winner
            assert answer["ok"] == (winner["result"] == number)
        assert [event["seq"] for event in client.events(run_id)] == [1]


def test_one_submit_is_dispatched_and_all_get_its_answer(
    broker: str, prefix: str, worker: WorkerProcess, client: BareClient
) -> None:
    submits = [{"name": "work", "params": number} for number in range(CLIENTS)]
    for run_id, answers in race(broker, prefix, client, "run.submit", submits).items():
        assert {json.dumps(answer["result"], sort_keys=True) for answer in answers} == {
            json.dumps(answers[0]["result"], sort_keys=True)
        }
        (dispatch,) = client.settled("run-dispatch", run_id.encode())
        (event,) = client.events(run_id)
        assert dispatch.json()["commandId"] == event["commandId"]


def test_one_caller_claims_a_call_and_all_others_wait_for_it(
    broker: str, prefix: str, worker: WorkerProcess, client: BareClient
) -> None:
    claims = [{"toolId": "t", "inputHash": "h", "owner": f"caller {number}"} for number in range(CLIENTS)]
    for answers in race(broker, prefix, client, "call.claim", claims).values():
        results = [answer["result"] for answer in answers]
        (winner,) = [number for number, result in enumerate(results) if result["status"] == "claimed"]
        for number, result in enumerate(results):
            if number != winner:
                assert (result["status"], result["owner"]) == ("pending", f"caller {winner}")
