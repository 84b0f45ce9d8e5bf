"""Problems that a language model writes; its answers count for nothing, SymPy's do.

A reply is taken when its text is clean, its statement is in the language, SymPy derives an answer from it (hard ones:
two ways agree), the model's own answer is that answer, the numbers of the statement are in the text, and the text
alone, formalised again in a fresh conversation, leads to the same answer. What fails is rejected with a reason.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from tqdm import tqdm

from common.errors import InputError, RunError
from common.records import Verdict
from data_gen.synthesis.check import Derived, Refused, problem_row
from data_gen.synthesis.endpoint import Endpoint, NoReply
from data_gen.synthesis.gate import Gate
from data_gen.synthesis.journal import Entry, Journal, entry, rejection
from data_gen.synthesis.made import Cell, passed
from data_gen.synthesis.pool import DerivationPool
from data_gen.synthesis.prompts import TOOL, ask_for_problem, ask_for_statement, check_grounded, check_text, read_object
from grading.equivalence import grade

MAX_TOOL_ROUNDS = 4
MOST_SILENT = 20
"""Requests in a row without a reply after which a run ends."""

Derive = Callable[..., Awaitable[Derived]]


async def proposal(
    endpoint: Endpoint, derive: Derive, cell: Cell, unit: int, *, has_tools: bool, read_back: str
) -> Entry:
    """Ask for one problem and check it. Raises NoReply and InputError as the endpoint does."""
    topic, difficulty = cell
    text = ""
    try:
        found = read_object(await _with_tools(endpoint, derive, ask_for_problem(topic, difficulty, unit), has_tools))
        text = str(found.get("problem"))
        row = await checked(endpoint, derive, found, cell, read_back=read_back)
    except Refused as error:
        return entry(unit, [], [rejection(error.reason, error.detail, text)])
    return entry(unit, [row], [])


async def checked(
    endpoint: Endpoint, derive: Derive, found: dict[str, Any], cell: Cell, *, read_back: str
) -> dict[str, Any]:
    """The row of a proposed problem. Raises Refused with the reason, NoReply."""
    topic, difficulty = cell
    text = check_text(found.get("problem"))
    formal, also, answer = found.get("formal"), found.get("also"), found.get("answer")
    if not isinstance(formal, dict):
        raise Refused("bad_statement", f"a {type(formal).__name__}, want an object")
    derived = await derive(formal, also, twice=difficulty == "hard")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise Refused("bad_answer", f"a {type(answer).__name__}")
    verdict = await asyncio.to_thread(lambda: grade(str(answer), derived.answer).verdict)
    if verdict is not Verdict.CORRECT:
        raise Refused("wrong_answer", f"{str(answer)[:80]} against {derived.answer}")
    check_grounded(text, formal)
    ways = derived.ways
    if read_back == "always" or (read_back == "hard" and difficulty == "hard"):
        await _read_back(endpoint, derive, text, derived.answer)
        ways = (*ways, "read back")
    return problem_row(
        text, Derived(derived.answer, ways), formal, topic=topic, difficulty=difficulty, steps=None, source="writer"
    )


async def _read_back(endpoint: Endpoint, derive: Derive, text: str, answer: str) -> None:
    """Formalise the text again, without the first statement; raise Refused unless it leads to the same answer."""
    message = await endpoint.chat(ask_for_statement(text))
    try:
        second = await derive(read_object(message.get("content")).get("formal"), None, twice=False)
    except Refused as error:
        raise Refused("not_read_back", f"{error.reason}: {error.detail}") from error
    verdict = await asyncio.to_thread(lambda: grade(second.answer, answer).verdict)
    if verdict is not Verdict.CORRECT:
        raise Refused("read_back_differs", f"{second.answer} against {answer}")


async def _with_tools(endpoint: Endpoint, derive: Derive, messages: list[dict[str, Any]], has_tools: bool) -> Any:
    """The content of the final reply, after the model has used the tool as often as it may."""
    for _ in range(MAX_TOOL_ROUNDS):
        message = await endpoint.chat(messages, [TOOL] if has_tools else [])
        calls = message.get("tool_calls")
        if not has_tools or not isinstance(calls, list) or not calls:
            return message.get("content")
        messages.append({"role": "assistant", "content": message.get("content") or "", "tool_calls": calls})
        for call in calls[:MAX_TOOL_ROUNDS]:
            messages.append({"role": "tool", "tool_call_id": _name(call), "content": await _tool_result(derive, call)})
    raise Refused("too_many_tool_calls")


def _name(call: Any) -> str:
    return str(call.get("id", "")) if isinstance(call, dict) else ""


async def _tool_result(derive: Derive, call: Any) -> str:
    try:
        function = call["function"]
        if function["name"] != "derive":
            return "error: the only tool is derive"
        return (await derive(json.loads(function["arguments"])["formal"], None, twice=False)).answer
    except Refused as error:
        return f"error: {error}"
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        return f"error: {type(error).__name__}"


def write_problems(journal: Journal, gate: Gate, options: argparse.Namespace, wanted: Sequence[Cell]) -> None:
    """Add requests to the journal until ``options.count`` problems have passed the gate.

    Raises:
        InputError: the endpoint refuses the requests.
        RunError: it does not answer, or ``max_requests`` are used up.
    """
    gate.remember(journal.accepted())
    if not options.endpoint.startswith(("http://", "https://")):
        raise InputError(f"--endpoint {options.endpoint!r}, want http://… or https://…")
    with DerivationPool(options.workers) as pool, ThreadPoolExecutor(max(1, options.workers)) as threads:
        asyncio.run(_write(journal, gate, options, wanted, pool, threads))


def _is_silent(done: Entry) -> bool:
    """True for a request that got no usable reply."""
    return any(row["reason"].startswith(("endpoint_", "reply_")) for row in done["rejected"])


async def _write(
    journal: Journal,
    gate: Gate,
    options: argparse.Namespace,
    wanted: Sequence[Cell],
    pool: DerivationPool,
    threads: ThreadPoolExecutor,
) -> None:
    loop = asyncio.get_running_loop()

    async def derive(formal: Any, also: Any, *, twice: bool) -> Derived:
        return await loop.run_in_executor(threads, lambda: pool.derive(formal, also, twice=twice))

    found, done = sum(1 for _ in journal.accepted()), journal.units
    most = options.max_requests or 10 * options.count
    answered = sum(not _is_silent(e) for e in journal.entries)
    units = (unit for unit in itertools.count() if unit not in done)
    silent = 0
    limits = httpx.Limits(max_connections=options.concurrency)
    async with httpx.AsyncClient(timeout=options.timeout, limits=limits) as client:
        endpoint = Endpoint(
            client, options.endpoint, options.model, options.temperature, options.timeout, options.attempts,
            options.wait, os.environ.get("OPENAI_API_KEY", ""),
        )  # fmt: skip

        async def one(unit: int) -> Entry:
            cell = wanted[unit % len(wanted)]
            try:
                return await proposal(
                    endpoint, derive, cell, unit, has_tools=not options.no_tools, read_back=options.read_back
                )
            except NoReply as error:
                return entry(unit, [], [rejection(error.reason, error.detail)])

        with tqdm(
            total=options.count, initial=found, desc="written problems", unit="problem", dynamic_ncols=True
        ) as bar:
            tasks: set[asyncio.Task[Entry]] = set()
            try:
                while found < options.count:
                    while len(tasks) < min(options.concurrency, most - answered):
                        tasks.add(asyncio.create_task(one(next(units))))
                    if not tasks:
                        raise RunError(f"{found} of {options.count} problems after {most} replies; see rejected.jsonl")
                    finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in finished:
                        new = passed(task.result(), gate)
                        silent = silent + 1 if _is_silent(new) else 0
                        answered += not _is_silent(new)
                        journal.add(new)
                        found += len(new["accepted"])
                        bar.update(len(new["accepted"]))
                    tasks -= finished
                    if silent >= MOST_SILENT:
                        raise RunError(
                            f"{options.endpoint}: {silent} requests in a row without a usable reply; run again to go on"
                        )
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    if endpoint.retried:
        tqdm.write(f"tries made again: {json.dumps(endpoint.retried)}")
