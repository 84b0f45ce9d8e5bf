"""The report in a browser without network: it opens fast, nothing is clipped, and three clicks lead to the alarm."""

import json
import time

import pytest
from browser import FAULTS, browser, opened  # noqa: F401 fixture
from eval_records import model
from test_eval_report import HOSTILE, batch_row, hostile_cases, run_dir, write_json  # noqa: F401 fixture
from test_eval_schema import PROBLEMS, make_metrics

from eval.browse import shelf
from eval.failures import Cases, examples, failure_groups
from eval.report import build_report
from eval.schema import write_record

ALARM = "prm_weak: AUC of the PRM on the outcome 0.55 over 3 batches, below 0.6; action: halve_process_weight, now 0.5"
ROWS = [batch_row(i, **{"prm/auc": 0.55, "entropy": 0.3 - 0.01 * i, "kl/reference": 0.02 * i}) for i in range(12)]


@pytest.fixture
def finished(run_dir):  # noqa: F811
    """Two evaluated rounds; the PRM likes one wrong path of round 1, and its alarms fired at updates 2 and 5."""
    base, policy = model("base", PROBLEMS, 0.25), model("policy", PROBLEMS, 0.75)
    policy.sampled.scores[3][6:] = [[0.99, 0.97]] * 2
    cases = Cases(failures=failure_groups(base, policy), examples=examples(base, policy, threshold=0.5))
    rows = [row | ({"alarms": [ALARM, HOSTILE]} if i in (2, 5) else {}) for i, row in enumerate(ROWS)]
    for index in (0, 1):
        folder = run_dir / f"round-{index}"
        for stage in ("3_prm", "4_ppo", "5_eval"):
            write_json(folder / stage / "DONE", {"seconds": 1.0, "stopped_by": "max_steps"})
        (folder / "4_ppo" / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows if index else ROWS)))
        write_record(folder / "5_eval" / "metrics.json", make_metrics(round=index))
        write_record(folder / "5_eval" / "cases.json", cases)
        write_record(folder / "5_eval" / "browser.json", shelf(base, policy, threshold=0.5))
    return run_dir


@pytest.mark.parametrize("width", [1280, 390])
def test_three_clicks_from_the_top_to_the_alarm(browser, finished, width):  # noqa: F811
    page, said = opened(browser, build_report(finished), width, 844)
    assert page.inner_text("#worst-score") == "0.97"
    page.click("#worst")
    path = page.locator(".path[open]")
    assert path.count() == 1
    assert path.locator(".path-score").inner_text() == "0.97"
    assert path.locator(".pill").inner_text() == "wrong"
    path.get_by_text("oracle: step 2 is the first error").click()
    assert path.locator(".oracle-says").inner_text() == (
        "Step 2 is the first wrong one by the oracle, habit sign_slip; the PRM gave it 0.97 and no step a score that"
        " counts as wrong."
    )
    assert path.locator(".pointed .mark").inner_text() == "✗ error"
    path.locator("a.button").click()
    alarm = page.get_by_text(f"update 2: {ALARM}")
    alarm.scroll_into_view_if_needed(timeout=1000)
    top = page.locator("#alarms-1").bounding_box()["y"]
    assert -1 <= top < 844
    assert said == []
    page.context.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("is_open", [False, True])
def test_nothing_is_clipped_covered_or_loaded(browser, finished, width, is_open):  # noqa: F811
    page, said = opened(browser, build_report(finished), width, 844)
    if is_open:
        page.evaluate("document.querySelectorAll('details').forEach(box => { box.open = true; })")
        page.wait_for_timeout(200)
    assert "\n".join(page.evaluate(FAULTS)) == ""
    assert said == []
    page.context.close()


def test_filters(browser, finished):  # noqa: F811
    page, said = opened(browser, build_report(finished))
    rows = page.locator(".path")
    assert page.inner_text("#path-count").startswith("48 of 48 different paths (taken from 192 sampled ones")
    page.select_option("#by-round", "1")
    page.select_option("#by-model", "policy")
    assert rows.count() == 12  # 6 problems, a right and a wrong text
    page.select_option("#by-dispute", "high-wrong")
    assert [rows.count(), rows.first.locator(".pill").inner_text()] == [1, "wrong"]
    page.select_option("#by-dispute", "low-right")
    assert rows.count() == 0
    page.select_option("#by-dispute", "")
    page.select_option("#by-verdict", "CORRECT")
    assert set(rows.locator(".pill").all_inner_texts()) == {"correct"}
    page.click("#worst")
    assert page.locator(".path").count() == 25
    page.click("#more")
    assert page.locator(".path").count() > 25
    assert said == []


def test_a_refresh_keeps_what_is_open_chosen_and_in_view(browser, finished):  # noqa: F811
    (finished / "round-1" / "5_eval" / "DONE").unlink()
    file = build_report(finished, 2.0)
    page, said = opened(browser, file)
    page.select_option("#by-model", "base")
    page.locator("#by-model").blur()
    page.locator("#failures details").first.evaluate("box => { box.open = true; }")
    page.evaluate("scrollTo(0, 700)")
    (finished / "round-1" / "5_eval" / "DONE").write_text('{"seconds": 4321.0}')
    (finished / "round-1" / "4_ppo" / "DONE").unlink()
    build_report(finished, 2.0)
    page.locator(".stages", has_text="4321").wait_for(timeout=15_000)
    page.wait_for_timeout(300)
    assert page.input_value("#by-model") == "base"
    assert page.locator("#failures details").first.get_attribute("open") is not None
    assert abs(page.evaluate("scrollY") - 700) < 40
    page.click("#pause")
    marked = page.evaluate("window.marked = 1")
    page.wait_for_timeout(2500)
    assert page.evaluate("window.marked") == marked
    assert said == []


def test_hostile_texts_are_text(browser, finished):  # noqa: F811
    cases = hostile_cases(HOSTILE)
    write_record(finished / "round-1" / "5_eval" / "cases.json", cases)
    (finished / "round-1" / "5_eval" / "browser.json").unlink()
    page, said = opened(browser, build_report(finished))
    page.select_option("#by-round", "1")
    page.locator(".path summary").first.click()
    assert "<img src=x onerror=alert(1)>" in page.locator(".path[open]").first.inner_text()
    assert page.locator("img, main script, iframe").count() == 0
    assert said == []


def test_it_opens_in_two_seconds(browser, finished):  # noqa: F811
    file = build_report(finished)
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        page, _ = opened(browser, file)
        page.wait_for_selector(".path")
        seconds.append(time.perf_counter() - started)
        page.context.close()
    assert min(seconds) < 2
