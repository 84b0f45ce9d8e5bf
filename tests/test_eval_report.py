"""The report: its numbers, its behaviour on missing and damaged stages, and hostile text."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from eval_records import model, path, problem
from rich.console import Console
from test_eval_schema import PROBLEMS, make_metrics

from common.errors import InputError
from eval import table
from eval.charts import MAX_MARKS, MAX_POINTS, Series, line_chart, nice_ticks, shown_number
from eval.failures import Cases, examples, failure_groups
from eval.monitor_charts import alarm_groups, alarm_list, monitor_charts
from eval.report import MAX_BYTES, _joined, build_report
from eval.schema import Figure, write_record
from eval.shown_text import plain_text
from eval.table import Row, headline_rows, print_table, shown_interval, shown_value

HOSTILE = "</style></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}\x00\x1b[31m\u202e"


class Tags(HTMLParser):
    """Collects tags and attributes, and checks that every opened tag is closed in order."""

    VOID = frozenset({"meta", "link", "line", "circle", "path", "br", "img"})

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def parsed(page):
    parser = Tags()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def write_json(file, value):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


def ppo_rows(count=20):
    rows = [{"step": i, "kl/reference": 0.01 * i, "rollout/steps": 5.0 - 0.1 * i, "odd/key": 2.0} for i in range(count)]
    rows[7]["alarms"] = ["PRM scores not finite for 2 % of a batch"]
    rows.append({"step": count - 1, "eval_accuracy": 0.625, "stopped_by": "kl cap"})
    return rows


@pytest.fixture
def run_dir(tmp_path):
    """A finished round 0 and a round 1 that was killed in ``ppo``."""
    run = tmp_path / "tiny"
    config = {"ppo.kl_cap": 0.15, "ppo.steps_floor": 0.7, "seed": 3}
    for index, stages in enumerate((("1_sample", "2_label", "3_prm", "4_ppo", "5_eval"), ("1_sample", "2_label"))):
        for stage in stages:
            folder = run / f"round-{index}" / stage
            write_json(folder / "config.json", config)
            write_json(
                folder / "DONE", {"seconds": 12.5, "pool_pass_rate": 0.4, "first_error_f1": 0.777, "accepted": True}
            )
    text = "\n".join(json.dumps(row) for row in ppo_rows())
    (run / "round-0" / "4_ppo" / "metrics.jsonl").write_text(text + '\n{"step": 99, "kl/refer')
    write_record(run / "round-0" / "5_eval" / "metrics.json", make_metrics())
    base, policy = model("base", PROBLEMS, 0.25), model("policy", PROBLEMS, 0.75)
    cases = Cases(failures=failure_groups(base, policy), examples=examples(base, policy, threshold=0.5))
    write_record(run / "round-0" / "5_eval" / "cases.json", cases)
    (run / "round-1" / "4_ppo").mkdir()
    return run


def test_report_holds_the_numbers(run_dir):
    page = build_report(run_dir).read_text()
    parser = parsed(page)
    for row in headline_rows(make_metrics()):
        assert row.label in page
        assert shown_value(row.difference, row.kind, signed=True) in page
        assert shown_interval(row.policy, row.kind) in page
    assert "25.0 → 75.0" in page
    assert "sign_slip" in page
    assert "kl cap" in page
    assert "PRM scores not finite for 2 % of a batch" in page
    assert "stop 0.15" in page
    assert "stop 3.36" in page  # 0.7 of the mean steps of the first five batches
    assert "odd/key" in page
    assert "0.777" in page
    assert "62.5" in page  # 5 x 12.5 seconds
    assert "✗ error" in page
    assert parser.tags.count("svg") >= 7


def test_supervised_start_is_shown_where_a_round_has_one(run_dir):
    assert "supervised start" not in build_report(run_dir).read_text()
    done = {"seconds": 33.5, "before": {"accuracy": 0.25}, "after": {"accuracy": 0.625}}
    write_json(run_dir / "round-0" / "0_sft" / "DONE", done)
    page = build_report(run_dir).read_text()
    assert "0.250, 0.625" in page
    assert "<th>sft</th>" in page
    assert "96.0" in page  # 5 x 12.5 + 33.5 seconds
    write_json(run_dir / "round-0" / "0_sft" / "DONE", {"before": ["x"], "after": 3})
    assert "supervised start" not in build_report(run_dir).read_text()


def test_report_needs_nothing_from_outside_and_runs_nothing(run_dir):
    page = build_report(run_dir).read_text()
    parser = parsed(page)
    assert not {"img", "iframe", "object", "embed", "form"} & set(parser.tags)
    assert parser.tags.count("script") == 2  # the paths, and the page's own one
    own = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in page
    assert own == (Path(table.__file__).parent / "templates" / "report.js").read_text()
    assert not [name for name, _ in parser.attributes if name.startswith("on")]
    assert {value for name, value in parser.attributes if name in ("src", "href")} <= {
        "data:,",
        *(f"#{anchor}" for anchor in re.findall(r' id="([\w-]+)"', page)),
    }
    assert "default-src 'none'" in page
    assert "http" not in re.sub(r'http-equiv="', "", page)
    assert "@import" not in page
    assert "url(" not in page


def test_report_says_what_is_missing(run_dir):
    page = build_report(run_dir).read_text()
    assert "round 1: stage prm has not been run (make prm ROUND=1)" in page
    assert "round 1: stage ppo is not finished (make ppo ROUND=1 continues it)" in page
    assert "round-0/4_ppo/metrics.jsonl: 1 unreadable row(s) left out" in page
    assert "round 0: stage" not in page


@pytest.mark.parametrize("stages", [0, 1, 3, 4])
def test_report_of_an_unfinished_run(tmp_path, stages):
    for stage in ["1_sample", "2_label", "3_prm", "4_ppo"][:stages]:
        write_json(tmp_path / "run" / "round-0" / stage / "DONE", {"seconds": 1.0})
    (tmp_path / "run" / "round-0").mkdir(parents=True, exist_ok=True)
    page = build_report(tmp_path / "run").read_text()
    parsed(page)
    assert "No evaluation yet." in page
    assert "round 0: stage eval has not been run (make eval)" in page


def test_damaged_files_do_not_stop_the_report(run_dir):
    (run_dir / "round-0" / "5_eval" / "metrics.json").write_text('{"run": "tiny", "round": NaN}')
    (run_dir / "round-0" / "3_prm" / "metrics.json").write_bytes(b"\xff\xfe[")
    (run_dir / "round-0" / "1_sample" / "config.json").write_text("[1]")
    with (run_dir / "round-0" / "4_ppo" / "metrics.jsonl").open("ab") as file:
        file.write(b'\n{"step": 30, "kl/reference": NaN}\n[1]\n\xff\n' + b"[" * 100_000 + b"\n")
    page = build_report(run_dir).read_text()
    parsed(page)
    assert "round-0/5_eval/metrics.json does not follow its schema" in page
    assert "round-0/3_prm/metrics.json is not a JSON object" in page
    assert "nan" not in re.findall(r' d="([^"]*)"', page).__str__().lower()


def test_no_run_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no such run folder"):
        build_report(tmp_path / "none")
    with pytest.raises(InputError, match="no round"):
        build_report(tmp_path)


def hostile_cases(text):
    asked = problem(0, topic=text)
    rows = [model(name, [asked], share) for name, share in (("base", 0.25), ("policy", 0.75))]
    for row in rows:
        group = [path("8" + text, steps=(text,) * 60, of=asked) for _ in row.sampled.paths[0]]
        row.sampled.paths[0][:] = group
        row.sampled.scores[0][:] = [[0.5] * 60 for _ in group]
    return Cases(failures=failure_groups(*rows), examples=examples(*rows, threshold=0.5))


def test_hostile_text_is_only_text(run_dir):
    write_record(run_dir / "round-0" / "5_eval" / "cases.json", hostile_cases(HOSTILE))
    write_record(
        run_dir / "round-0" / "5_eval" / "metrics.json",
        make_metrics(run=HOSTILE, ppo=make_metrics().ppo.model_copy(update={"stopped_by": HOSTILE})),
    )
    write_json(run_dir / "round-0" / "4_ppo" / "config.json", {HOSTILE: HOSTILE})
    with (run_dir / "round-0" / "4_ppo" / "metrics.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"step": 5, HOSTILE: 1.0, "alarms": [HOSTILE], "stopped_by": HOSTILE}) + "\n")
    page = build_report(run_dir).read_text()
    parser = parsed(page)
    assert "&lt;script&gt;alert(1)" in page
    assert "img" not in parser.tags
    assert [parser.tags.count(tag) for tag in ("script", "style")] == [2, 1]
    assert not [name for name, _ in parser.attributes if name.startswith("on")]
    assert not set("\x00\x1b\u202e") & set(page)
    assert "{{ 7*7 }}" in page


def test_hostile_run_folder_name(tmp_path):
    run = tmp_path / "<script>x<"
    (run / "round-0").mkdir(parents=True)
    assert parsed(build_report(run).read_text()).tags.count("script") == 2


def test_huge_texts_stay_below_the_limit(run_dir):
    write_record(run_dir / "round-0" / "5_eval" / "cases.json", hostile_cases("<&" * 50_000))
    page = build_report(run_dir)
    assert page.stat().st_size <= MAX_BYTES
    parsed(page.read_text())


def test_same_run_same_page(run_dir):
    first = build_report(run_dir).read_bytes()
    assert build_report(run_dir).read_bytes() == first
    assert len(first) < MAX_BYTES


def test_plain_text():
    assert plain_text("a\x00b\u202ec\ud800", 10) == "a�b�c�"
    assert plain_text("line\n\tline", 20) == "line\n\tline"
    assert plain_text("abcdef", 3) == "abc…"
    assert plain_text("x² + √2 ≥ ½ 数", 50) == "x² + √2 ≥ ½ 数"


def test_printed_table():
    out = io.StringIO()
    print_table(make_metrics(run="[bold]x"), Console(file=out, width=140))
    printed = out.getvalue()
    assert "[bold]x, round 0: 6 test problems" in printed
    assert "25.0 [25.0, 25.0]" in printed
    assert "75.0 [75.0, 75.0]" in printed
    assert "+50.0 [+50.0, +50.0]" in printed


@pytest.mark.parametrize(
    ("low", "high", "better", "verdict"),
    [
        (0.1, 0.3, 1, "better"),
        (-0.3, -0.1, 1, "worse"),
        (-0.3, -0.1, -1, "better"),
        (-0.1, 0.3, 1, "unclear"),
        (0.1, 0.3, 0, "changed"),
    ],
)
def test_verdict_of_a_row(low, high, better, verdict):
    figure = Figure(value=(low + high) / 2, ci95=(low, high))
    assert Row("x", figure, figure, figure, better=better).verdict == verdict
    assert Row("x", figure, figure, Figure.absent("none"), better=better).verdict == "unclear"


def test_shown_figures():
    figure = Figure(value=0.12345, ci95=(-0.00001, 0.2))
    assert shown_value(figure, "share") == "12.3"
    assert shown_value(figure, "share", signed=True) == "+12.3"
    assert shown_interval(figure, "share") == "[0.0, 20.0]"
    assert shown_value(figure, "number") == "0.12"
    assert shown_value(figure, "score") == "0.123"
    assert shown_value(Figure.absent("none"), "share") == "–"
    assert shown_interval(Figure.absent("none"), "share") == ""


def test_ticks_are_round_and_cover_the_range():
    assert nice_ticks(0.0, 100.0) == [0, 25, 50, 75, 100]
    assert nice_ticks(0.0, 1.0) == [0, 0.25, 0.5, 0.75, 1.0]
    assert nice_ticks(3.2, 17.0) == [0, 5, 10, 15, 20]
    assert nice_ticks(-0.013, 0.02) == pytest.approx([-0.02, -0.01, 0, 0.01, 0.02])
    with pytest.raises(ValueError, match="low < high"):
        nice_ticks(1.0, 1.0)


def test_chart_geometry():
    chart = line_chart("t", [Series("s", "policy", [(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)])])
    assert chart.lines[0].path == f"M{chart.left}.0,{chart.bottom}.0L200.0,98.0L{chart.right}.0,{chart.top}.0"
    assert chart.y_ticks[0] == (chart.bottom, "0")
    assert chart.y_ticks[-1] == (chart.top, "100")


def test_chart_leaves_out_what_is_not_finite_and_thins_long_series():
    assert line_chart("t", [Series("s", "policy", [(0.0, float("nan"))])]) is None
    chart = line_chart("t", [Series("s", "policy", [(float(i), i % 7) for i in range(5000)])])
    assert chart.lines[0].path.count("L") == MAX_POINTS - 1
    assert len(chart.lines[0].marks) == MAX_MARKS
    assert chart.lines[0].marks[0][0] == chart.left
    assert chart.lines[0].marks[-1][0] == chart.right
    assert line_chart("t", [Series("s", "policy", [(1.0, 2.0)])]).lines[0].marks


def test_near_limits_are_drawn_and_far_ones_are_named():
    series = [Series("s", "policy", [(0.0, 0.1), (1.0, 0.2)])]
    chart = line_chart("t", series, limits=[(0.3, "near 0.3"), (50.0, "far 50")])
    assert [label for _, label, _, _ in chart.limits] == ["near 0.3"]
    assert chart.note.endswith("(off the chart: far 50)")
    assert chart.limits[0][0] < chart.lines[0].marks[-1][1]  # above the data


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.0123, "0.0123"), (2e-5, "2e-5"), (12345, "12345"), (1e6, "1e6"), (-0.5, "-0.5")]
)
def test_shown_number(value, text):
    assert shown_number(value) == text


def test_monitors_find_their_keys_and_limits():
    rows = [*ppo_rows(), {"step": 40, "flag": True, "text": "x", "kl/reference": float("inf")}]
    watched, further = monitor_charts(rows, {"ppo.kl_cap": 0.15}, alarm_groups(alarm_list(rows), "alarm-0"))
    assert [chart.title for chart in watched] == [
        "Validation accuracy",
        "KL to the reference, nats a token",
        "Steps a path",
    ]
    assert [label for _, label, _, _ in watched[1].limits] == ["roll back 0.45", "stop 0.15"]
    assert [label for _, label, _, _ in watched[2].limits] == ["half process weight 9.8", "half process weight 2.45"]
    assert [chart.title for chart in further] == ["odd/key"]
    assert len(watched[1].alarms) == 2


def test_alarms_are_listed_with_their_update():
    assert alarm_list(ppo_rows()) == [
        (7.0, "PRM scores not finite for 2 % of a batch"),
        (19.0, "stopped: kl cap"),
    ]


def batch_row(step, **changes):
    row = {
        "step": step,
        "kl/reference": 0.01,
        "rollout/repeated_ngrams": 0.0,
        "rollout/steps": 5.0,
        "rollout/fallback_share": 0.0,
        "rollout/truncated": 0.0,
        "rollout/unparsed": 0.1,
        "reward/outcome": 0.5,
        "rollout/equal_groups": 0.2,
    }
    return row | changes


def test_alarms_that_were_not_logged_are_found_again():
    rows = [
        batch_row(0),
        {"step": 0, "eval_accuracy": 0.5},
        batch_row(1, **{"rollout/fallback_share": 0.02}),
        batch_row(2, grad_norm="nan"),
        *[batch_row(step, **{"reward/outcome": 0.0}) for step in (3, 4, 5)],
    ]
    found = alarm_list(rows)
    assert [step for step, _ in found] == [1.0, 2.0, 5.0]
    assert found[0][1].startswith("PRM scores not finite for 2.0% of a batch")
    assert found[1][1] == "grad_norm is nan"
    assert found[2][1] == "all outcome rewards 0 for 3 batches"


def test_parts_of_a_fit_follow_each_other():
    history = [{"part": "head", "step": 5}, {"part": "head", "step": 10}, {"part": "all", "step": 5}, {"part": "all"}]
    assert [row["step"] for row in _joined(history)] == [5.0, 10.0, 15.0, 15.0]


def test_stop_reason_of_the_stage_is_listed(tmp_path):
    folder = tmp_path / "run" / "round-0" / "4_ppo"
    write_json(folder / "DONE", {"seconds": 1.0, "stopped_by": "validation accuracy flat"})
    (folder / "metrics.jsonl").write_text(json.dumps(batch_row(0)))
    assert "stopped: validation accuracy flat" in build_report(tmp_path / "run").read_text()
