"""What the report shows of a run that goes on: limits in force, alarms by kind, stages, paths to browse, refresh."""

import json
import re

import pytest
from eval_records import model, problem
from test_eval_report import batch_row, run_dir, write_json  # noqa: F401 fixture
from test_eval_schema import PROBLEMS

from common.config import Config
from common.runs import stage_config
from eval import report
from eval.browse import PATHS, PathShelf, chosen, shelf
from eval.charts import LABEL_GAP, Series, event_chart, line_chart
from eval.failures import seen_paths
from eval.monitor_charts import alarm_groups, alarm_list, alarm_timeline, monitor_charts
from eval.monitor_table import ALARMS, MONITORS, limits_of, rules_in_force
from eval.report import MAX_BYTES, build_report, main
from eval.report_live import newest_change, signature, watch
from eval.schema import write_record
from policy.actions import RULES
from policy.arguments import monitor_limits


def island(page):
    return json.loads(re.search(r'id="paths-data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "kl_cap": 0.3,
            "prm_auc_floor": 0.55,
            "entropy_floor": 0.2,
            "difficulty_bands": 6,
            "logp_difference_limit": 0.2,
        },
    ],
)
def test_rules_drawn_are_the_rules_in_force(changes):
    """Read off the flat configuration of the run folder, without what the trainer imports."""
    config = Config(ppo=Config().ppo.model_copy(update=changes))
    assert rules_in_force(stage_config(config, "ppo")) == monitor_limits(config).rules


def test_every_rule_and_alarm_has_a_monitor():
    facts = {monitor.fact for monitor in MONITORS}
    assert {rule.fact for rule in RULES} | ALARMS.keys() <= facts


def test_levels_of_rules():
    """Start of 3 batches: 6 steps a path. Stop at 0.7 of the first 5 batches, act below half and above twice."""
    monitor = next(one for one in MONITORS if one.fact == "mean_steps")
    points = [(float(i), y) for i, y in enumerate([6.0, 5.0, 7.0, 6.0, 6.0, 3.0])]
    assert limits_of(monitor, {"ppo.steps_floor": 0.7}, points) == [
        (pytest.approx(4.2), "stop 4.2"),
        (pytest.approx(12.0), "half process weight 12"),
        (pytest.approx(3.0), "half process weight 3"),
    ]
    assert {label.partition(" 3")[0] for _, label in limits_of(monitor, {"ppo.alarm_actions": False}, points)} == {
        "alarm 12",
        "alarm",
    }
    reward = next(one for one in MONITORS if one.fact == "reward_mean")
    assert limits_of(reward, {}, [(float(i), y) for i, y in enumerate([0.2, 0.2, 0.2, 0.8, 0.8, 0.8, 0.1])]) == [
        (pytest.approx(0.2), "roll back 0.2")  # a quarter of the best window
    ]
    kl = next(one for one in MONITORS if one.fact == "kl")
    climb = [(float(i), y) for i, y in enumerate([0.01, 0.06, 0.5, 0.6])]
    assert (pytest.approx(0.3), "roll back 0.3") in limits_of(kl, {}, climb)  # 5 times the largest before the last two
    assert (0.1, "roll back 0.1") in limits_of(kl, {}, climb[:1] * 2)
    assert limits_of(reward, {}, []) == []
    assert limits_of(reward, {}, [(0.0, 0.2)]) == []


def test_alarms_by_kind():
    rows = [
        batch_row(0),
        batch_row(1, alarms=["61% of the groups have equal rewards and teach nothing"]),
        batch_row(
            2, alarms=["75% of the groups have equal rewards and teach nothing", "kl_coef 0.01 -> 0.015 (KL 0.3)"]
        ),
        batch_row(3, alarms=["prm_weak: AUC 0.5 over 3 batches, below 0.6; action: halve_process_weight, now 0.5"]),
        batch_row(4, alarms=["prm_weak: AUC 0.5; action: none (log only)"]),
        batch_row(5, stopped_by="KL to the reference 1.2 above 1 over 5 batches"),
    ]
    groups = alarm_groups(alarm_list(rows), "alarm-2")
    assert [(group.style, len(group.events), group.anchor) for group in groups] == [
        ("alarm", 2, "alarm-2-0"),
        ("act", 1, "alarm-2-1"),
        ("act", 2, "alarm-2-2"),
        ("stop", 1, "alarm-2-3"),
    ]
    assert groups[2].name == "prm_weak"
    drawn = alarm_timeline(groups, rows)
    assert [len(at) for _, _, at in drawn.rows] == [2, 1, 2, 1]
    assert drawn.rows[3][2] == [drawn.right]
    charts, _ = monitor_charts(rows, {}, groups)
    assert {anchor for chart in charts for _, _, anchor in chart.alarms} == {"alarm-2-0", "alarm-2-2", "alarm-2-3"}
    assert charts[0].alarms[1][1].count("\n") == 1  # two alarms of one update share a mark
    assert alarm_groups([(None, "stopped: max_steps")], "x")[0].style == "end"
    assert alarm_timeline([], rows) is None


def test_labels_of_near_limits_do_not_cover_each_other():
    series = [Series("s", "policy", [(0.0, 0.0), (1.0, 1.0)])]
    chart = line_chart("t", series, limits=[(0.5, "a"), (0.51, "b"), (0.52, "c"), (0.9, "d")])
    named = [(label, at, is_right) for _, label, at, is_right in chart.limits if label]
    assert len(chart.limits) == 4
    assert ", ".join(label for label, _, _ in named) == "d, c, b, a"
    for place, (_, at, side) in enumerate(named):
        assert all(side != other or abs(at - its) >= LABEL_GAP for _, its, other in named[place + 1 :])


def test_one_event_has_a_place():
    assert event_chart([], (3.0, 3.0)).x_ticks


def test_shelf_holds_each_text_once_and_disputes_first():
    base, policy = model("base", PROBLEMS, 0.25), model("policy", PROBLEMS, 0.75)
    for group, scores in zip(policy.sampled.paths, policy.sampled.scores, strict=True):
        scores[-1] = [0.95, 0.9]  # a wrong answer that the PRM likes
        assert group[-1].answer == "8"
    found = shelf(base, policy, threshold=0.5)
    assert found.sampled == {"base": 48, "policy": 48}
    assert sum(case.count for case in found.cases) == 96
    texts = [(case.model, case.problem, case.answer) for case in found.cases]
    assert len(set(texts)) == len(texts) == 24
    assert PathShelf.model_validate_json(found.model_dump_json()) == found


def test_choice_of_paths():
    """40 % wrong answers by falling score, 20 % right ones by rising score, 20 % disputes, the rest from everything."""
    problems = [problem(i) for i in range(10)]
    one = model("policy", problems, 0.5)
    for p, scores in enumerate(one.sampled.scores):
        scores[:] = [[0.01 * (8 * p + g)] * 2 for g in range(8)]
    seen = list(seen_paths(one, "min"))
    picked = chosen(seen, 0.5, limit=20)
    assert len(set(picked)) == len(picked) == 20
    wrong = [index for index in range(79, -1, -1) if index % 8 >= 4]
    right = [index for index in range(80) if index % 8 < 4]
    assert picked[:8] == wrong[:8]
    assert picked[8:12] == right[:4]
    assert sorted(chosen(seen, None, limit=200)) == list(range(80))
    assert chosen([], 0.5) == []
    assert PATHS > 0


def test_paths_of_the_page(run_dir):  # noqa: F811
    older = island(build_report(run_dir).read_text())  # evaluated before there was browser.json: the cases
    assert [one["round"] for one in older] == [0]
    assert older[0]["paths"]
    assert older[0]["sampled"] == 0
    base, policy = model("base", PROBLEMS, 0.25), model("policy", PROBLEMS, 0.75)
    write_record(run_dir / "round-0" / "5_eval" / "browser.json", shelf(base, policy, threshold=0.5))
    newer = island(build_report(run_dir).read_text())[0]
    assert (newer["sampled"], newer["threshold"]) == (96, 0.5)
    wrong = next(path for path in newer["paths"] if path["verdict"] == "WRONG")
    assert wrong["steps"] == [["a", 0.9, "right"], ["b", 0.1, "wrong"]]
    assert wrong["score"] == 0.1
    assert wrong["habit"] == "sign_slip"
    (run_dir / "round-0" / "5_eval" / "browser.json").write_text("{")
    page = build_report(run_dir).read_text()
    assert "browser.json does not follow its schema" in page
    assert island(page) == older


def test_many_rounds_of_long_logs_and_hostile_paths_stay_below_the_limit(run_dir):  # noqa: F811
    base, policy = model("base", PROBLEMS, 0.25), model("policy", PROBLEMS, 0.75)
    kept = shelf(base, policy, threshold=0.5)
    step = kept.cases[0].steps[0].model_copy(update={"text": "<&" * 900})
    cases = [case.model_copy(update={"path_id": f"{i}", "steps": [step] * 40}) for i in range(4) for case in kept.cases]
    rows = [batch_row(i, **{f"further/{k}": float(i % 7) for k in range(10)}) for i in range(60)]
    for index in range(3):
        folder = run_dir / f"round-{index}"
        write_record(folder / "5_eval" / "browser.json", kept.model_copy(update={"cases": cases}))
        write_json(folder / "4_ppo" / "DONE", {"seconds": 1.0})
        (folder / "4_ppo" / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    page = build_report(run_dir)
    assert page.stat().st_size <= MAX_BYTES
    assert (
        max(len(step[0]) for one in island(page.read_text()) for path in one["paths"] for step in path["steps"]) < 1500
    )


def test_a_page_refreshes_itself_only_while_something_is_left_to_do(run_dir):  # noqa: F811
    page = build_report(run_dir, 5.0).read_text()
    assert 'data-refresh="5.0"' in page
    assert "● ppo" in page
    assert "○ eval" in page
    assert 'data-refresh=""' in build_report(run_dir).read_text()
    for stage in ("3_prm", "4_ppo", "5_eval"):
        write_json(run_dir / "round-1" / stage / "DONE", {"seconds": 1.0})
    assert 'data-refresh=""' in build_report(run_dir, 5.0).read_text()


def test_watching_builds_when_the_run_changes(run_dir):  # noqa: F811
    built, looks, said = [], [], []
    log = run_dir / "round-1" / "4_ppo" / "metrics.jsonl"

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            log.write_text(json.dumps(batch_row(0)))
        if len(looks) == 3:
            (run_dir / "report.html").write_text("the page itself is no change of the run")
        if len(looks) == 5:
            raise KeyboardInterrupt

    watch(run_dir, lambda refresh: built.append(refresh) or run_dir / "report.html", 7.0, sleep=sleep, say=said.append)
    assert built == [7.0, 7.0, None]
    assert looks == [7.0] * 5
    assert len(said) == 2


def test_a_file_that_goes_away_while_it_is_looked_at_is_no_error(run_dir):  # noqa: F811
    gone = run_dir / "round-1" / "4_ppo" / "metrics.jsonl"
    gone.symlink_to(run_dir / "nowhere")
    assert all("metrics.jsonl" not in name for name, _, _ in signature(run_dir) if "round-1" in name)
    assert newest_change(run_dir) > 1e9
    assert newest_change(run_dir / "none") == 0


def test_command(run_dir, capsys, monkeypatch):  # noqa: F811
    assert main([str(run_dir)]) == 0
    assert capsys.readouterr().out == f"report: {run_dir / 'report.html'}\n"
    assert main([str(run_dir / "none")]) == 2
    assert main([str(run_dir), "--watch", "nan"]) == 2
    assert "must be 1 or more seconds" in capsys.readouterr().err
    asked = []
    monkeypatch.setattr(report, "watch", lambda run, build, seconds: asked.append((run, build(seconds), seconds)))
    assert main([str(run_dir), "--watch", "3"]) == 0
    assert asked == [(run_dir, run_dir / "report.html", 3.0)]
    assert 'data-refresh="3.0"' in (run_dir / "report.html").read_text()
