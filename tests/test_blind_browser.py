"""The blind page in a browser: rated by keys from the first answer to the exported file, with a reload in between."""

import json

import pytest
from blind_raters import made, write_sources
from browser import FAULTS, browser, opened  # noqa: F401 fixture

from eval.blind.answers import paired, read_source
from eval.blind.page import make_page
from eval.blind.ratings import read_ratings
from eval.blind.score import score

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)> "


def keys_of(item, key, *, prefer="a"):
    """What a person presses who finds every answer of ``prefer`` right, clear and better."""
    is_first = key.items[item].first == prefer
    good, bad = ["1", "5", "4"], ["2", "2", "1"]
    return (good + bad if is_first else bad + good) + ["1" if is_first else "3"]


def exported(page, tmp_path, press="e"):
    with page.expect_download() as download:
        page.keyboard.press(press)
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    return file


def test_from_the_first_answer_to_the_score(browser, tmp_path):  # noqa: F811
    text, key, _ = made(tmp_path, 6)
    file = tmp_path / "blind.html"
    file.write_text(text)
    page, said = opened(browser, file)
    page.fill("#rater", "ada")
    page.locator("#rater").blur()
    for item in range(3):
        assert page.inner_text("#place") == f"Problem {item + 1} of 6"
        for press in keys_of(item, key):
            page.keyboard.press(press)
    for press in keys_of(3, key)[:4]:
        page.keyboard.press(press)
    page.reload()
    assert page.inner_text("#place") == "Problem 4 of 6"
    assert page.inner_text("#count") == "3 complete"
    assert page.input_value("#rater") == "ada"
    assert page.locator("[aria-pressed=true]").count() == 4
    half = json.loads(exported(page, tmp_path).read_text())
    assert [one["preference"] for one in half["ratings"]][3] is None
    for press in keys_of(3, key)[4:] + [press for item in (4, 5) for press in keys_of(item, key)]:
        page.keyboard.press(press)
    assert page.is_visible("#all-done")
    assert page.inner_text("#count") == "6 complete"
    file = exported(page, tmp_path)
    assert file.name == f"ratings-{key.page[:8]}-ada.json"
    result = score(key, read_ratings([file], key))
    assert (result.preference.votes_a, result.preference.votes_b) == (6, 0)
    assert result.raters[0].complete == 6
    assert [result.criteria[name].a.value for name in ("correctness", "clarity", "brevity")] == [1, 5, 4]
    assert [result.criteria[name].b.value for name in ("correctness", "clarity", "brevity")] == [0, 2, 1]
    assert said == []


def test_another_page_keeps_its_own_ratings(browser, tmp_path):  # noqa: F811
    """Both at one address: what is kept is kept by the page's content."""
    file = tmp_path / "blind.html"
    file.write_text(made(tmp_path, 6, seed=1)[0])
    page, _ = opened(browser, file)
    page.keyboard.press("1")
    page.reload()
    assert page.locator("[aria-pressed=true]").count() == 1
    file.write_text(made(tmp_path, 6, seed=2)[0])
    page.reload()
    assert page.locator("[aria-pressed=true]").count() == 0


def test_keys_go_back_revise_and_show_the_reference(browser, tmp_path):  # noqa: F811
    file = tmp_path / "blind.html"
    text, key, _ = made(tmp_path, 3)
    file.write_text(text)
    page, said = opened(browser, file)
    for press in ("1", "9", "3", "Backspace", "4", "g"):  # 9 is no answer to anything
        page.keyboard.press(press)
    assert page.is_visible("#gold-text")
    assert page.inner_text("#gold-text") == key.items[0].problem.removeprefix("problem ")
    page.keyboard.press("n")
    assert not page.is_visible("#gold-text")
    row = json.loads(exported(page, tmp_path).read_text())["ratings"]
    assert len(row) == 1
    assert (row[0]["first"], row[0]["gold_seen"]) == ({"correctness": "right", "clarity": 4, "brevity": None}, True)
    assert said == []


@pytest.mark.parametrize("kept", ["{", "3", '{"values": {"0": ["<b>", 99, null, {}, 1, 2, "first"]}, "at": -5}'])
def test_damaged_or_foreign_storage_does_not_break_the_page(browser, tmp_path, kept):  # noqa: F811
    file = tmp_path / "blind.html"
    text, key, _ = made(tmp_path, 3)
    file.write_text(text)
    page, said = opened(browser, file)
    page.evaluate(
        "([slot, kept]) => { window.onbeforeunload = null; localStorage.setItem(slot, kept); }",
        ["blind-ratings:" + key.page, kept],
    )
    second, said = opened(browser, file, context=page.context)
    second.keyboard.press("1")
    assert second.inner_text("#place") == "Problem 1 of 3"
    assert json.loads(exported(second, tmp_path).read_text())["ratings"][0]["first"]["correctness"] == "right"
    assert said == []


def test_hostile_and_huge_answers_are_inert_on_desk_and_phone(browser, tmp_path):  # noqa: F811
    files = write_sources(
        tmp_path, 3, lambda side, i: side + HOSTILE + (r"\boxed{\frac{1}{2}}", "x" * 90_000, "<&" * 9_000)[i]
    )
    a, b = (read_source(str(one)) for one in files)
    file = tmp_path / "blind.html"
    file.write_text(make_page(a, b, paired(a, b))[0])
    for width in (1280, 390):
        page, said = opened(browser, file, width, 844)
        for _ in range(3):
            assert HOSTILE.strip() in page.inner_text("#answer-0")
            assert page.locator("main img, main svg, .text script").count() == 0
            assert page.evaluate(FAULTS) == []
            page.keyboard.press("n")
        assert said == []
        page.context.close()


def test_formulas_are_drawn_without_network(browser, tmp_path):  # noqa: F811
    pytest.importorskip("latex2mathml")
    files = write_sources(tmp_path, 1, lambda side, i: rf"{side}: so $x=\frac{{3}}{{4}}$")
    a, b = (read_source(str(one)) for one in files)
    file = tmp_path / "blind.html"
    file.write_text(make_page(a, b, paired(a, b))[0])
    page, said = opened(browser, file)
    over, under = (page.locator("#answer-0 mfrac > *").nth(index).bounding_box() for index in (0, 1))
    assert over["y"] + over["height"] <= under["y"] + 1
    page.keyboard.press("t")
    assert page.inner_text("#answer-0").endswith(r"so $x=\frac{3}{4}$")
    assert said == []
