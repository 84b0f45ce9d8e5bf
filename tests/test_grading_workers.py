"""The processes of the answer checker: killed, replaced, bounded, right from any thread and in a forked process."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from common.records import Verdict
from grading.equivalence import grade, grade_batch, grade_completion
from grading.workers import LIMIT_S, WORKER, SymbolicFailure, SymbolicTimeout, SymbolicWorker, resident_bytes

RIGHT, WRONG = Verdict.CORRECT, Verdict.WRONG


def test_l01_same_verdict_from_a_thread_and_under_fork():
    pairs = [("\\frac{1}{3}", "\\frac{1}{3}"), ("(a+b)^2", "a^2+2ab+b^2"), ("(a+b)^2", "a^2+b^2")]
    wanted = [RIGHT, RIGHT, WRONG]
    got: list[Verdict] = []
    thread = threading.Thread(target=lambda: got.extend(result.verdict for result in grade_batch(pairs)))
    thread.start()
    thread.join(60)
    assert got == wanted
    assert [result.verdict for result in grade_batch(pairs)] == wanted
    child = os.fork()
    if child == 0:
        verdict = grade("(c+d)^2", "c^2+2cd+d^2").verdict
        WORKER.close()
        os._exit(0 if verdict is RIGHT else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert grade("(e+f)^2", "e^2+2ef+f^2").verdict is RIGHT


def test_l02_l04_a_question_without_end_is_killed_and_the_next_one_is_answered():
    worker = SymbolicWorker()
    one = ("num", 1, 1)
    assert worker.ask("are_equal", one, one) is True
    first = worker.pid
    tower = ("pow", ("num", 3, 1), ("pow", ("num", 9, 1), ("num", 40, 1)))
    started = time.monotonic()
    with pytest.raises(SymbolicTimeout):
        worker.ask("are_equal", tower, one, limit_s=0.5)
    assert time.monotonic() - started < 3
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert worker.ask("are_equal", one, ("num", 2, 1)) is False
    assert worker.pid != first
    second = worker.pid
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


def test_l04_twenty_rows_with_one_time_out_give_twenty_verdicts_and_leave_no_child(monkeypatch):
    worker = SymbolicWorker()
    monkeypatch.setattr("grading.compare.WORKER", worker)
    before = _children()
    hard = ("(x+9)^2", "x^2+18x+81")
    pairs = [(f"(x+{k})^2", f"x^2+{2 * k}x+{k * k}") for k in range(201, 220)]
    monkeypatch.setattr(worker, "ask", functools.partial(_ask_or_time_out, worker.ask))
    verdicts = [one.verdict for one in grade_batch([*pairs[:7], hard, *pairs[7:]])]
    assert verdicts == [RIGHT] * 7 + [Verdict.TIMEOUT] + [RIGHT] * 12
    assert _children() > before
    worker.close()
    assert _children() == before


def _ask_or_time_out(ask, question, a, b, limit_s):
    return ask(question, a, b, limit_s=1e-6 if "('num', 9, 1)" in repr(a) else 60)


def test_l03_all_questions_of_one_answer_share_the_limit(monkeypatch):
    given = []

    def slow(question, a, b, limit_s):
        given.append(limit_s)
        if limit_s < 0.1:
            raise SymbolicTimeout
        time.sleep(0.1)
        return True

    monkeypatch.setattr(WORKER, "ask", slow)
    monkeypatch.setattr(WORKER, "start", lambda: None)
    gold = ", ".join(f"x^2+{2 * k}x+{k * k}" for k in range(301, 340))
    answer = ", ".join(f"(x+{k})^2" for k in range(301, 340))
    assert grade(answer, gold).verdict is Verdict.TIMEOUT
    assert given[0] == LIMIT_S
    assert given == sorted(given, reverse=True)
    assert len(given) <= LIMIT_S / 0.1 + 1


def _children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split())


def test_l14_a_worker_is_replaced_and_its_memory_is_bounded():
    worker = SymbolicWorker(recycle_after=50)
    assert worker.ask("are_equal", ("sym", "x"), ("sym", "x")) is True
    first, start = worker.pid, resident_bytes(worker.pid)
    for k in range(120):
        x = ("sym", f"x_{k}")
        assert worker.ask("are_equal", x, ("mul", (x, ("num", 1 + k % 2, 1)))) is (k % 2 == 0)
    assert worker.pid != first
    assert 0 < resident_bytes(worker.pid) < start + (200 << 20)
    worker.close()


def test_a_worker_that_dies_costs_no_later_answer():
    worker = SymbolicWorker()
    x, y = ("sym", "x"), ("sym", "y")
    assert worker.ask("are_equal", x, x) is True
    first = worker.pid
    os.kill(first, signal.SIGKILL)
    assert worker.ask("are_equal", x, y, limit_s=60) is False  # the next worker answers it
    assert worker.ask("are_equal", x, x) is True
    assert worker.pid != first
    os.killpg(worker._process.pid, signal.SIGKILL)
    with contextlib.suppress(SymbolicFailure):
        worker.ask("are_equal", x, x)
    assert worker.ask("are_equal", x, x) is True
    worker.close()


def test_l13_code_is_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    payloads = [
        "__import__('os').system('touch PWNED')",
        "x.__class__.__mod__.__globals__['__builtins__']['open']('PWNED','w')",
        "exec(\"open('PWNED','w')\")",
        "2\\pi + __import__('os').system('touch PWNED')",
        "[[1,2] for _ in [__import__('os').system('touch PWNED')]]",
    ]
    for payload in payloads:
        for gold in ("42", "0", "2\\pi", "\\begin{pmatrix}1&2\\end{pmatrix}"):
            assert grade_completion(f"\\boxed{{{payload}}}", gold).verdict is not RIGHT
        assert grade("(x+2)^2", "x^2+2x+4").verdict is WRONG
        assert grade("41", "42").verdict is WRONG
    assert not list(tmp_path.iterdir())
    sources = [path.read_text() for path in (Path(__file__).parent.parent / "grading").glob("*.py")]
    assert not any(word + "(" in source for source in sources for word in ("sympify", "parse_expr", " eval", "exec"))


def test_a_failure_of_the_checker_is_not_the_models_fault(monkeypatch):
    with pytest.raises(SymbolicFailure, match="are_equal: KeyError"):
        WORKER.ask("are_equal", ("nonsense", 1), ("nonsense", 2))
    assert WORKER.ask("are_equal", ("sym", "x"), ("sym", "x")) is True  # the process went on

    def fail(*_: object, **__: object) -> bool:
        raise SymbolicFailure("are_equal: TypeError")

    monkeypatch.setattr(WORKER, "ask", fail)
    result = grade("(y+37)^2", "y^2+74y+1369")
    assert (result.verdict, result.how) == (Verdict.TIMEOUT, "symbolic failure")
    monkeypatch.undo()
    assert grade("(y+37)^2", "y^2+74y+1369").verdict is Verdict.CORRECT  # a failure is not remembered


def test_equal_pairs_of_a_batch_are_judged_once(monkeypatch):
    asked = []
    monkeypatch.setattr(WORKER, "ask", lambda *question, **_: asked.append(question) or True)
    pairs = [("(z+41)^2", "z^2+82z+1681"), ("7", "7"), ("(z+41)^2", "z^2+82z+1681")]
    assert [one.verdict for one in grade_batch(pairs)] == [Verdict.CORRECT] * 3
    assert len(asked) == 1
