"""The blind page's file gives nothing away, hostile text is text, and known preferences are found again."""

import builtins
import html.parser
import json
import random
import re

import numpy as np
import pytest
from blind_raters import made, rater, rating_row, write_sources
from eval_records import path, problem

from common.checksums import write_checked_rows
from common.errors import InputError
from common.runs import write_rows
from eval.blind.__main__ import main
from eval.blind.answers import Source, paired, read_source
from eval.blind.maths import can_typeset, formula, pieces
from eval.blind.page import MAX_ANSWER, Key, make_page, page_hash
from eval.blind.ratings import read_ratings, votes
from eval.blind.score import agreement, exact_share, score
from eval.schema import read_record, write_record

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)><!--\u202e\x00]]>{{ 7*7 }}"


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_does_not_say_who_is_who(tmp_path):
    """Nothing but the answers differs between a page and the one with the models exchanged."""
    page, key, (a, b) = made(tmp_path, 30, seed=7)
    for word in ("first_model", "second_model", str(tmp_path), "seed", "policy", "base"):
        assert word not in page
    data = data_of(page)
    assert set(data) == {"page", "items"}
    assert all(set(item) == {"problem", "gold", "answers"} and len(item["answers"]) == 2 for item in data["items"])
    exchanged = make_page(Source("x", b.answers), Source("y", a.answers), paired(b, a), seed=7)[0]
    swapped = [item | {"answers": item["answers"][::-1]} for item in data_of(exchanged)["items"]]
    assert swapped == data["items"]
    assert page.replace(data["page"], "").split("<script type")[0] == exchanged.split("<script type")[0]
    assert [item.problem for item in key.items] != sorted(item.problem for item in key.items)


def test_each_model_stands_first_equally_often_and_the_draw_is_new_each_time(tmp_path):
    firsts, pages = [], set()
    for _ in range(20):
        _, key, _ = made(tmp_path, 11)
        firsts.append([item.first for item in key.items])
        pages.add(key.page)
        assert abs(firsts[-1].count("a") - 5.5) == 0.5
    assert len(pages) == 20
    assert {row[0] for row in firsts} == {"a", "b"}


def test_the_key_belongs_to_the_page(tmp_path):
    page, key, _ = made(tmp_path, 12, number=5)
    data = data_of(page)
    assert data["page"] == key.page == page_hash(data["items"])
    assert (len(key.items), key.not_drawn, key.identical) == (5, 7, 0)
    for item, shown in zip(key.items, data["items"], strict=True):
        assert shown["problem"]["pieces"] == [item.problem]
        assert shown["answers"][0]["pieces"][0].startswith(item.first)


def test_hostile_text_is_only_text(tmp_path):
    files = write_sources(tmp_path, 3, lambda side, i: side + HOSTILE + ("<&" * 50_000 if i == 1 else ""))
    a, b = (read_source(str(file)) for file in files)
    page, _ = make_page(a, b, paired(a, b))
    tags = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append((tag, dict(attrs)))
    parser.feed(page)
    assert [attrs for tag, attrs in tags if tag == "script"] == [{"type": "application/json", "id": "data"}, {}]
    assert not [tag for tag, attrs in tags if tag in ("img", "iframe") or any(name.startswith("on") for name in attrs)]
    text = data_of(page)["items"][0]["answers"][0]["pieces"][0]
    assert "alert(1)</script>" in text
    assert not set("\x00\u202e") & set(text)
    assert "100030" not in text  # the page holds what is shown of a huge answer, not all of it
    assert (
        max(len("".join(one["pieces"])) for item in data_of(page)["items"] for one in item["answers"]) < MAX_ANSWER + 60
    )
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/]{43}='", page)
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/1998/Math/MathML", "")


def test_empty_answers_and_half_characters(tmp_path):
    """JSON may hold a lone surrogate, which no file can."""
    files = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for file, text in zip(files, ("", "\ud800 and \U0001d4b3"), strict=True):
        file.write_text(json.dumps({"problem": "p \udfff", "output": text}))
    assert main(["make", "--a", str(files[0]), "--b", str(files[1]), "--out", str(tmp_path / "x.html")]) == 0
    (item,) = data_of((tmp_path / "x.html").read_text())["items"]
    assert sorted(one["pieces"][0] for one in item["answers"]) == ["[no text]", "� and \U0001d4b3"]
    assert read_record(tmp_path / "x.key.json", Key).items[0].problem == "p �"


def test_formulas_become_elements_of_a_closed_set():
    pytest.importorskip("latex2mathml")
    found = pieces(r"Half is $\frac{1}{2}$, costs $5 and $6, so \boxed{\sqrt{2}}.")
    assert [type(piece) for piece in found] == [str, list, str, list, str]
    assert found[1][:2] == ["math", {"display": "inline"}]
    assert found[1][2][2] == ["mfrac", {}, ["mrow", {}, ["mn", {}, "1"]], ["mrow", {}, ["mn", {}, "2"]]]
    assert found[2] == ", costs $5 and $6, so "
    assert "boxed" in json.dumps(found[3])


@pytest.mark.parametrize(
    "text",
    [r"$\href{javascript:alert(1)}{x}$", r"$\text{<img src=x onerror=alert(1)>}$", r"$\color{red;x:url(y)}{x}$"],
)
def test_formulas_carry_no_link_style_or_markup(text):
    pytest.importorskip("latex2mathml")

    def attributes(node):
        return set() if isinstance(node, str) else set(node[1]).union(*map(attributes, node[2:]))

    assert not {name for piece in pieces(text) for name in attributes(piece)} - {"display"}


@pytest.mark.parametrize("source", [r"\unknown{3}", r"\frac{1}", "x" * 2000, "{" * 500, r"\begin{matrix}"])
def test_what_is_no_formula_stays_as_it_was_written(source):
    pytest.importorskip("latex2mathml")
    assert formula(source) is None
    assert pieces(f"a ${source}$ b") == [f"a ${source}$ b"]


def test_without_the_library_texts_stay_as_they_were_written(monkeypatch):
    monkeypatch.setattr("eval.blind.maths.importlib.util.find_spec", lambda name: None)
    assert not can_typeset()
    assert pieces(r"$\frac{1}{2}$") == [r"$\frac{1}{2}$"]


def test_sources(tmp_path):
    """A run's greedy paths of either model, a benchmark's folder, and equal texts, which are left out."""
    problems = [problem(i) for i in range(3)]
    folder = tmp_path / "run" / "round-0"
    (folder / "1_sample").mkdir(parents=True)
    (folder / "5_eval").mkdir()
    write_rows(folder / "1_sample" / "problems_test.jsonl", [one.to_row() for one in problems])
    for place, word in ((folder / "5_eval" / "paths", "policy"), (tmp_path / "run" / "base_paths", "base")):
        place.mkdir()
        greedy = [path("7", steps=(f"{word} greedy",), of=one) for one in problems]
        sampled = [path("7", steps=(f"{word} {g}",), of=one, name=g) for one in problems for g in range(4)]
        write_checked_rows(place / "b.jsonl", [one.to_row() for one in greedy])
        write_checked_rows(place / "a.jsonl", [one.to_row() for one in sampled])
    with pytest.raises(InputError, match="no round with a finished evaluation"):
        read_source(str(tmp_path / "run"))
    (folder / "5_eval" / "DONE").write_text("{}")
    policy, base = read_source(str(tmp_path / "run")), read_source(f"{tmp_path / 'run'}:base")
    assert policy.answers["problem 1"].text == "policy greedy\nAnswer: 7"
    assert base.answers["problem 1"].text == "base greedy\nAnswer: 7"
    assert read_source(str(folder)).answers == policy.answers
    bench = tmp_path / "bench"
    bench.mkdir()
    rows = [{"id": "x", "problem": f"problem {i}", "gold": "7", "samples": [{"text": text, "is_cut": False}]}
            for i, text in enumerate(["policy greedy\nAnswer: 7", "other", "another"])]  # fmt: skip
    write_rows(bench / "outputs.jsonl", rows)
    pairs = paired(policy, read_source(str(bench)))
    assert ([pair.problem for pair in pairs.different], pairs.identical) == (["problem 1", "problem 2"], 1)


@pytest.mark.parametrize(
    ("row", "message"),
    [({"output": "x"}, "row 1: problem = None"), ({"problem": "p"}, "no field with the answer"),
     ({"problem": "p", "samples": []}, "samples = '\\[\\]'"), ({"problem": "p", "output": 3}, "output = '3'")],
)  # fmt: skip
def test_bad_rows_are_named(tmp_path, row, message):
    (tmp_path / "x.jsonl").write_text(json.dumps(row))
    with pytest.raises(InputError, match=message):
        read_source(str(tmp_path / "x.jsonl"))


@pytest.mark.parametrize("prefer", [1.0, 0.0])
def test_the_preferred_model_is_named_wherever_it_stood(tmp_path, prefer):
    _, key, _ = made(tmp_path, 20)
    result = score(key, [rater(key, "x", prefer, seed=0)])
    wins = result.preference
    assert (wins.votes_a, wins.votes_b) == ((20, 0) if prefer else (0, 20))
    assert wins.decided_a.ci95 == pytest.approx((0.025 ** (1 / 20), 1.0) if prefer else (0.0, 1 - 0.025 ** (1 / 20)))
    assert wins.sign_test == pytest.approx(2 * 0.5**20)
    assert wins.first_place.value == pytest.approx(0.5)
    assert result.criteria["correctness"].difference.value == 1
    assert [result.criteria["clarity"].a.value, result.criteria["clarity"].b.value] == [4, 1]
    assert result.criteria["brevity"].difference.ci95 == (3, 3)


def test_known_preferences_are_recovered_and_dice_prefer_nobody(tmp_path):
    """Of 100 comparisons the intervals hold the truth about as often as they say."""
    _, key, _ = made(tmp_path, 40)
    held = {chance: [0, 0, 0] for chance in (0.5, 0.8)}
    for chance, counts in held.items():
        for seed in range(100):
            one = score(key, [rater(key, "x", chance, seed=seed)], seed=seed, resamples=200).preference
            low, high = one.decided_a.ci95
            counts[0] += low <= chance <= high
            counts[1] += one.share_a.ci95[0] <= chance <= one.share_a.ci95[1]
            counts[2] += low > 0.5
    assert min(held[0.5][0], held[0.8][0]) >= 88  # at least 95 % in the long run: 87 of 100 is once in 1,000
    assert min(held[0.5][1], held[0.8][1]) >= 84  # of a bootstrap over 40 problems a little less
    assert held[0.5][2] <= 8  # 2.5 % in the long run
    assert held[0.8][2] >= 88  # 26 of 40 or less is twice in 100


def test_ties_count_half_and_people_are_put_together_by_problem(tmp_path):
    _, key, _ = made(tmp_path, 4)
    first = [rating_row(key, item, winner) for item, winner in enumerate(["a", "a", "tie", "b"])]
    second = [rating_row(key, item, winner) for item, winner in enumerate(["a", "b", "b", "tie"])]
    people = [rater(key, name, 0.5, seed=0) for name in "xy"]
    people = [one.model_validate_json(json.dumps(one.model_dump(mode="json") | {"ratings": rows}))
              for one, rows in zip(people, (first, second), strict=True)]  # fmt: skip
    wins = score(key, people).preference
    assert (wins.votes_a, wins.ties, wins.votes_b) == (3, 2, 3)
    assert (wins.problems_a, wins.problems_tied, wins.problems_b) == (1, 1, 2)
    assert wins.share_a.value == pytest.approx(4 / 8)
    assert wins.decided_a.value == pytest.approx(1 / 3)


def test_alpha_is_that_of_the_literature():
    """Krippendorff (2011), Computing Krippendorff's alpha-reliability, C and D: 4 observers, 12 units."""
    pytest.importorskip("krippendorff")
    rows = ["1 2 3 3 2 1 4 1 2 . . .", "1 2 3 3 2 2 4 1 2 5 . 3", ". 3 3 3 2 3 4 2 2 5 1 .", "1 2 3 3 2 4 4 1 2 5 1 ."]
    table = np.array([[np.nan if word == "." else float(word) for word in row.split()] for row in rows])
    assert agreement(table, "nominal").alpha == pytest.approx(0.743, abs=0.0005)
    assert agreement(table, "ordinal").alpha == pytest.approx(0.815, abs=0.0005)


def test_agreement_of_equal_people_and_of_dice(tmp_path):
    pytest.importorskip("krippendorff")
    _, key, _ = made(tmp_path, 200)
    same = [rater(key, "x", 0.5, seed=1)]
    same.append(same[0].model_copy(update={"rater": "y"}))
    assert score(key, same).preference.agreement.alpha == 1
    dice = [rater(key, name, 0.5, seed=1, ties=0.2) for name in "xyz"]
    assert abs(score(key, dice).preference.agreement.alpha) < 0.12  # 200 problems, 3 people: deviation about 0.04
    agreed = score(key, [rater(key, name, 0.95, seed=1) for name in "xy"]).preference.agreement.alpha
    assert agreed == pytest.approx(2 * (0.95**2 + 0.05**2) - 1, abs=0.12)  # chance agrees on half of drawn places
    assert score(key, dice[:1]).preference.agreement.reason == "nothing was rated by two people"


def test_agreement_without_the_library_says_so(monkeypatch):
    real = builtins.__import__

    def absent(name, *args):
        if name == "krippendorff":
            raise ImportError
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", absent)
    assert "pip install" in agreement(np.array([[1.0, 2.0], [1.0, 2.0]]), "nominal").reason


def test_exact_interval():
    """5 of 10: 0.1871 to 0.8129 (Clopper and Pearson's table)."""
    assert exact_share(5, 10).ci95 == pytest.approx((0.1871, 0.8129), abs=5e-5)
    assert exact_share(0, 0).value is None


def test_commands_from_sources_to_the_score(tmp_path, capsys):
    a, b = write_sources(tmp_path, 30)
    out = tmp_path / "blind.html"
    assert main(["make", "--a", str(a), "--b", str(b), "--out", str(out)]) == 0
    key = read_record(tmp_path / "blind.key.json", Key)
    assert key.page in out.read_text()
    files = []
    for name, chance, items in (("ada", 0.9, None), ("bob", 0.9, range(7))):
        files.append(tmp_path / f"{name}.json")
        write_record(files[-1], rater(key, name, chance, seed=3, items=items))
    capsys.readouterr()
    assert main(["score", str(tmp_path / "blind.key.json"), *map(str, files)]) == 0
    printed = capsys.readouterr().out
    assert "ada: 30 complete\n" in printed
    assert "bob: 7 complete, 0 partial, 23 missing" in printed
    row = json.loads(printed.splitlines()[-1])
    assert row["preference"]["decided_a"]["ci95"][0] > 0.5
    assert main(["make", "--a", str(a), "--b", str(b), "--out", str(out)]) == 2  # would lose the ratings
    assert "the key of another page" in capsys.readouterr().err


def test_half_rated_problems_count_where_they_are_rated(tmp_path):
    _, key, _ = made(tmp_path, 5)
    whole = rater(key, "x", 1.0, seed=0).model_dump(mode="json")
    whole["ratings"][0]["preference"] = None
    whole["ratings"][1]["first"] = {"correctness": "unsure", "clarity": None, "brevity": 3}
    del whole["ratings"][4]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(whole))
    raters = read_ratings([file], key)
    result = score(key, raters)
    assert [*result.raters[0].model_dump().values()] == ["x", 2, 2, 1]
    assert result.preference.votes_a == 3
    assert len(votes(raters, key)) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"page": "0" * 64}, "ratings of page 000000000000, the key is that of page"),
        ({"items": 6}, "ratings of 6 problems, the page has 5"),
        ({"rater": ""}, "rater = ''"),
        ({"format": "blind-ratings/2"}, "format = 'blind-ratings/2'"),
        ({"ratings": [{"item": 99}]}, "ratings.0.first"),
        ({"extra": 1}, "extra = 1"),
    ],
)
def test_ratings_that_do_not_belong_are_refused(tmp_path, change, message):
    _, key, _ = made(tmp_path, 5)
    file = tmp_path / "x.json"
    file.write_text(json.dumps(rater(key, "x", 0.5, seed=0).model_dump(mode="json") | change))
    with pytest.raises(InputError, match=message):
        read_ratings([file], key)


def test_one_file_a_person_each_problem_once_and_somebody_rated(tmp_path):
    _, key, _ = made(tmp_path, 5)
    rows = rater(key, "x", 0.5, seed=0).model_dump(mode="json")
    files = [tmp_path / "x.json", tmp_path / "copy.json"]
    for file in files:
        file.write_text(json.dumps(rows))
    with pytest.raises(InputError, match="rater 'x' has ratings in"):
        read_ratings(files, key)
    for ratings in (rows["ratings"] + rows["ratings"][:1], [rows["ratings"][0] | {"item": 5}]):
        files[0].write_text(json.dumps(rows | {"ratings": ratings}))
        with pytest.raises(InputError, match="each at most once, below 5"):
            read_ratings(files[:1], key)
    files[0].write_text(json.dumps(rows | {"ratings": []}))
    with pytest.raises(InputError, match="no problem is rated"):
        score(key, read_ratings(files[:1], key))


@pytest.mark.parametrize("arguments", [["--a", "none"], ["--problems", "0"], ["--out", "nowhere/x.html"]])
def test_bad_options_are_one_line(tmp_path, capsys, arguments):
    a, b = write_sources(tmp_path, 3)
    options = ["--a", str(a), "--b", str(b), "--out", str(tmp_path / "x.html"), *arguments]
    assert main(["make", *options]) == 2
    assert capsys.readouterr().err.startswith("eval.blind: ")


TEX_WORDS = (
    r"\frac \sqrt \left \right \left. ( ) { } ^ _ & \\ \begin{matrix} \end{matrix} \end \genfrac \hspace{ \rule"
    r" \operatorname \limits \substack \sum x 1 + = \boxed \text \color{red} \middle | \hline ' % ~ \Big"
)


def test_text_that_is_no_tex_is_refused_whatever_the_library_raises():
    pytest.importorskip("latex2mathml")
    words = TEX_WORDS.split()
    drawn = random.Random(0)
    texts = [" ".join(drawn.choices(words, k=drawn.randint(1, 9))) for _ in range(1500)]
    texts += ["\\" * 50, "{" * 400, "^" * 300, "\\left(" * 200, "\x00", "\ud800"]
    found = [formula(text) for text in texts]
    assert sum(one is None for one in found) > 500
    assert sum(one is not None for one in found) > 50
