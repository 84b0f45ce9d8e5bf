"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const make = (tag, name, ...children) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.append(...children);
    return made;
  };
  const SLOT = "report:" + location.pathname;
  const PAGE = 25;
  const rounds = JSON.parse($("paths-data").textContent);
  const paths = rounds.flatMap(round => round.paths.map(path => ({ ...path, round: round.round, threshold: round.threshold })));
  const isRight = path => path.verdict === "CORRECT";
  const isWrong = path => path.verdict === "WRONG";
  const score = path => path.score === null ? -1 : path.score;
  const oracleError = path => path.steps.findIndex(step => step[2] === "wrong");
  const prmError = path => path.threshold === null ? -1 : path.steps.findIndex(step => step[1] !== null && step[1] < path.threshold);
  const isKnown = path => path.steps.some(step => step[2] === "right" || step[2] === "wrong");
  const cut = path => path.threshold === null ? 0.5 : path.threshold;

  const DISPUTES = {
    "high-wrong": ["PRM passes a wrong answer", path => !isRight(path) && score(path) >= cut(path)],
    "low-right": ["PRM doubts a right answer", path => isRight(path) && path.score !== null && path.score < cut(path)],
    "other-step": ["PRM and oracle name another step", path => isKnown(path) && path.score !== null && prmError(path) !== oracleError(path)],
    "hidden": ["right answer, wrong step", path => isRight(path) && oracleError(path) >= 0],
  };
  const wrongFirst = (a, b) => isRight(a) - isRight(b) || (isRight(a) ? score(a) - score(b) : score(b) - score(a));
  const ORDERS = {
    "wrong-high": ["wrong answers, highest score first", wrongFirst],
    "right-low": ["right answers, lowest score first", (a, b) => isRight(b) - isRight(a) || score(a) - score(b)],
    "score": ["highest score first", (a, b) => score(b) - score(a)],
  };
  const FILTERS = {
    round: ["round", path => String(path.round)],
    model: ["model", path => path.model],
    verdict: ["verdict", path => path.verdict],
    kind: ["kind", path => path.kind],
  };
  let shown = PAGE;

  function select(id, label, entries) {
    const box = document.createElement("select");
    box.id = "by-" + id;
    box.append(...entries.map(([value, text]) => new Option(text, value)));
    box.addEventListener("change", () => { shown = PAGE; list(); });
    $("filters").append(make("label", "", label + " ", box));
  }

  function setUp() {
    if (!paths.length) return;
    for (const [id, [label, of]] of Object.entries(FILTERS)) {
      const values = [...new Set(paths.map(of))].sort();
      if (values.length > 1) select(id, label, [["", "all"], ...values.map(value => [value, value])]);
    }
    select("dispute", "disagreement", [["", "all"], ...Object.entries(DISPUTES).map(([id, [text]]) => [id, text])]);
    select("order", "order", Object.entries(ORDERS).map(([id, [text]]) => [id, text]));
    $("more").addEventListener("click", () => { shown += PAGE; list(); });
    const wrong = paths.filter(isWrong).sort(wrongFirst);
    const worst = wrong.find(path => oracleError(path) >= 0) || wrong[0];
    if (worst) {
      $("worst").addEventListener("click", event => {
        event.preventDefault();
        reset(worst);
      });
      $("worst").hidden = false;
      $("worst-score").textContent = worst.score === null ? "–" : worst.score.toFixed(2);
    }
    $("browser").hidden = false;
    list();
  }

  function reset(wanted) {
    for (const box of document.querySelectorAll("#filters select")) box.value = "";
    $("by-order").value = "wrong-high";
    const place = found().indexOf(wanted);
    shown = Math.max(PAGE, place + 1);
    list();
    const row = $("path-list").children[place];
    row.open = true;
    row.scrollIntoView({ block: "start" });
    row.querySelector("summary").focus({ preventScroll: true });
  }

  const wanted = id => ($("by-" + id) || { value: "" }).value;

  function found() {
    const dispute = DISPUTES[$("by-dispute").value];
    return paths
      .filter(path => Object.entries(FILTERS).every(([id, [, of]]) => !wanted(id) || of(path) === wanted(id)))
      .filter(path => !dispute || dispute[1](path))
      .sort(ORDERS[$("by-order").value][1]);
  }

  function list() {
    const all = found();
    $("path-list").replaceChildren(...all.slice(0, shown).map(row));
    const sampled = rounds.reduce((sum, round) => sum + round.sampled, 0);
    $("path-count").textContent = all.length + " of " + paths.length + " different paths" + (sampled ? " (taken from " + sampled + " sampled ones: where PRM, outcome and oracle disagree first; × n: sampled n times)" : "");
    $("more").hidden = all.length <= shown;
  }

  function row(path) {
    const verdict = make("span", "pill " + (isRight(path) ? "right" : isWrong(path) ? "wrong" : "other"), path.verdict.toLowerCase());
    const number = make("b", "path-score", path.score === null ? "–" : path.score.toFixed(2));
    const where = make("span", "soft", path.model + (rounds.length > 1 ? ", round " + path.round : "") + ", " + path.kind + (path.count > 1 ? ", × " + path.count : ""));
    const box = make("details", "path", make("summary", "", verdict, number, where, make("bdi", "one-line", path.problem)));
    box.addEventListener("toggle", () => { if (box.open && box.childElementCount === 1) box.append(body(path)); });
    return box;
  }

  function body(path) {
    const text = words => make("bdi", "model-text", words);
    const facts = document.createElement("dl");
    const fact = (name, ...values) => facts.append(make("dt", "", name), make("dd", "", ...values));
    fact("problem", text(path.problem));
    fact("answer", text(path.answer === null ? "none" : path.answer), " (gold ", text(path.gold), ")");
    const error = oracleError(path);
    const steps = make("ol", "steps", ...path.steps.map((step, index) => stepRow(step, index === prmError(path))));
    const links = make("p", "links");
    if (error >= 0) {
      const button = make("button", "", "oracle: step " + (error + 1) + " is the first error");
      button.type = "button";
      button.addEventListener("click", () => {
        steps.children[error].classList.add("pointed");
        steps.children[error].scrollIntoView({ block: "center" });
        const said = prmError(path);
        verdict.textContent = "Step " + (error + 1) + " is the first wrong one by the oracle" + (path.habit ? ", habit " + path.habit : "") +
          "; the PRM gave it " + (path.steps[error][1] === null ? "no score" : path.steps[error][1].toFixed(2)) +
          (said < 0 ? " and no step a score that counts as wrong." : said === error ? " and calls it the first wrong one too." : " and calls step " + (said + 1) + " the first wrong one.");
      });
      links.append(button);
    } else links.append(make("span", "soft", isKnown(path) ? "oracle: no wrong step" : "no word of an oracle"));
    const target = $("alarms-" + path.round);
    if (target) {
      const link = make("a", "button", target.dataset.title);
      link.href = "#alarms-" + path.round;
      links.append(" ", link);
    }
    const verdict = make("p", "oracle-says");
    const parts = make("div", "", facts, links, verdict, steps);
    if (path.tail) parts.append(make("p", "soft", text(path.tail)));
    return parts;
  }

  function stepRow([words, value, mark], isClaimed) {
    const signs = { right: "✓ right", wrong: "✗ error", after: "· after", unknown: "? unknown" };
    const item = document.createElement("li");
    if (value !== null) {
      item.className = value < 0.5 ? "low" : "high";
      item.style.setProperty("--a", String(value < 0.5 ? 0.04 + 0.6 * (0.5 - value) : 0.04 + 0.4 * (value - 0.5)));
    }
    const number = make("span", "score" + (isClaimed ? " claimed" : ""), value === null ? "–" : value.toFixed(2));
    if (isClaimed) number.title = "the first step that the PRM calls wrong";
    item.append(make("bdi", "model-text", words), number, make("span", "mark mark-" + mark, signs[mark] || ""));
    return item;
  }

  function unfold() {
    const target = location.hash.length > 1 && $(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let place = target; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
    target.scrollIntoView();
  }

  function folds() {
    const seen = {};
    return [...document.querySelectorAll("details")].map(box => {  // by words without numbers: the run may have gone on
      const section = box.closest("section");
      const name = (section ? section.id : "") + ":" + box.querySelector("summary").textContent.replace(/[0-9.…]+/g, "").trim();
      seen[name] = (seen[name] || 0) + 1;
      return [name + "#" + seen[name], box];
    });
  }

  function keep() {
    const open = Object.fromEntries(folds().map(([name, box]) => [name, box.open]));
    const filters = Object.fromEntries([...document.querySelectorAll("#filters select")].map(box => [box.id, box.value]));
    try {
      sessionStorage.setItem(SLOT, JSON.stringify({ y: scrollY, open, filters, shown }));
    } catch (error) {
      console.warn("the page's state cannot be kept: " + error.name);
    }
  }

  function restore() {
    let kept = null;
    try {
      kept = JSON.parse(sessionStorage.getItem(SLOT));
      sessionStorage.removeItem(SLOT);
    } catch (error) {
      console.warn("the page's state cannot be read: " + error.name);
    }
    if (!kept) return false;
    for (const [id, value] of Object.entries(kept.filters)) {
      if ($(id) && [...$(id).options].some(option => option.value === value)) $(id).value = value;
    }
    if (paths.length) {
      shown = kept.shown;
      list();
    }
    for (const [name, box] of folds()) if (Object.hasOwn(kept.open, name)) box.open = kept.open[name];
    requestAnimationFrame(() => scrollTo(0, kept.y));
    return true;
  }

  function status() {
    const place = $("age");
    if (!place) return;
    const newest = Number(place.dataset.newest);
    const seconds = Math.max(0, Math.round(Date.now() / 1000 - newest));
    const age = seconds < 120 ? seconds + " s" : seconds < 7200 ? Math.round(seconds / 60) + " min" : Math.round(seconds / 3600) + " h";
    place.textContent = "last change of the run's files: " + new Date(newest * 1000).toLocaleString() + ", " + age + " ago" +
      (seconds > 600 ? ": is it still running?" : "");
  }

  function live() {
    const refresh = Number(document.body.dataset.refresh);
    if (!refresh) return;
    let isPaused = false;
    $("pause").hidden = false;
    $("pause").addEventListener("click", () => {
      isPaused = !isPaused;
      $("pause").textContent = isPaused ? "go on" : "pause";
    });
    setInterval(() => {
      const isBusy = document.activeElement && document.activeElement.tagName === "SELECT";
      if (isPaused || isBusy || document.hidden || String(getSelection())) return;
      keep();
      location.reload();
    }, refresh * 1000);
  }

  setUp();
  addEventListener("hashchange", unfold);
  if (!restore()) unfold();
  status();
  setInterval(status, 5000);
  live();
})();
