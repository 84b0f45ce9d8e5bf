"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const MATHML = "http://www.w3.org/1998/Math/MathML";
  const CORRECTNESS = [["right", "right"], ["wrong", "wrong"], ["unsure", "cannot tell"]];
  const SCALE = [1, 2, 3, 4, 5].map(value => [value, ""]);
  const QUESTIONS = [
    ...[0, 1].flatMap(side => [
      { side, name: "correctness", label: "Correctness", options: CORRECTNESS },
      { side, name: "clarity", label: "Clarity", options: SCALE },
      { side, name: "brevity", label: "Brevity", options: SCALE },
    ]),
    { side: 2, name: "preference", label: "Which is better?", options: [["first", "the first"], ["tie", "as good"], ["second", "the second"]] },
  ];
  const SLOT = "blind-ratings:" + data.page;
  const $ = id => document.getElementById(id);
  const state = { rater: "", at: 0, values: {}, gold: {}, seconds: {} };
  let asked = 0, asSource = false, since = Date.now(), unsaved = false;

  const rated = item => state.values[item] || Array(QUESTIONS.length).fill(null);
  const isComplete = item => !rated(item).includes(null);
  const known = (question, value) => QUESTIONS[question].options.some(option => option[0] === value) ? value : null;

  function restore(isFirst) {
    let kept = null;
    try {
      kept = JSON.parse(localStorage.getItem(SLOT));
    } catch (error) {
      warn("What this browser kept cannot be read (" + error.name + "); rating starts anew.");
    }
    if (!kept || typeof kept !== "object") return;
    state.rater = String(kept.rater || "").slice(0, 40);
    for (let item = 0; item < data.items.length; item++) {
      const values = kept.values && kept.values[item];
      if (Array.isArray(values)) state.values[item] = QUESTIONS.map((_, index) => known(index, values[index]));
      if (kept.gold && kept.gold[item] === true) state.gold[item] = true;
      const seconds = kept.seconds && Number(kept.seconds[item]);
      if (seconds >= 0 && Number.isFinite(seconds)) state.seconds[item] = seconds;
    }
    if (isFirst && Number.isInteger(kept.at) && kept.at >= 0 && kept.at < data.items.length) state.at = kept.at;
  }

  function keep() {
    const now = Date.now();
    state.seconds[state.at] = (state.seconds[state.at] || 0) + Math.min(now - since, 300000) / 1000;
    since = now;
    try {
      localStorage.setItem(SLOT, JSON.stringify(state));
      unsaved = false;
    } catch (error) {
      unsaved = true;
      warn("This browser cannot keep the ratings (" + error.name + "): export them before you close the page.");
    }
  }

  function warn(words) {
    $("warn").textContent = words;
    $("warn").hidden = false;
  }

  function element(piece) {
    if (typeof piece === "string") return document.createTextNode(piece);
    const [tag, attributes, ...children] = piece;
    const made = document.createElementNS(MATHML, tag);
    for (const name of Object.keys(attributes)) made.setAttribute(name, attributes[name]);
    made.append(...children.map(element));
    return made;
  }

  function fill(place, text) {
    place.replaceChildren(...(asSource && "source" in text ? [text.source] : text.pieces.map(element)));
  }

  function show() {
    const item = data.items[state.at];
    fill($("problem-text"), item.problem);
    item.answers.forEach((answer, side) => { fill($("answer-" + side), answer); });
    $("gold").hidden = !item.gold;
    if (item.gold) fill($("gold-text"), item.gold);
    $("gold-text").hidden = !state.gold[state.at];
    const values = rated(state.at);
    for (const side of [0, 1, 2]) {
      $("questions-" + side).replaceChildren(...QUESTIONS.flatMap((question, index) =>
        question.side === side ? [questionBox(question, index, values[index])] : []));
    }
    const done = data.items.filter((_, index) => isComplete(index)).length;
    $("place").textContent = "Problem " + (state.at + 1) + " of " + data.items.length;
    $("count").textContent = done + " complete";
    $("done").style.width = 100 * done / data.items.length + "%";
    $("all-done").hidden = done < data.items.length;
    if ($("as-text").open) $("json").value = exported();
  }

  function questionBox(question, index, value) {
    const box = document.createElement("div");
    box.className = "question" + (index === asked ? " asked" : "");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", question.label);
    const options = document.createElement("div");
    options.className = "options";
    options.append(...question.options.map(([option, label], number) => {
      const button = document.createElement("button");
      const key = document.createElement("kbd");
      button.type = "button";
      key.textContent = number + 1;
      button.append(key, label && " " + label);
      button.setAttribute("aria-pressed", String(option === value));
      button.addEventListener("click", () => answer(index, number));
      return button;
    }));
    const label = document.createElement("span");
    label.textContent = question.label;
    box.append(label, options);
    return box;
  }

  function answer(index, number) {
    const option = QUESTIONS[index].options[number];
    if (!option) return;
    const values = rated(state.at);
    const isRevised = isComplete(state.at);
    values[index] = option[0];
    if (!Object.keys(state.values).length) $("help").open = false;
    state.values[state.at] = values;
    keep();
    const left = values.findIndex((value, place) => value === null && place > index);
    if (left >= 0) asked = left;
    else if (values.includes(null)) asked = values.indexOf(null);
    else if (isRevised) asked = Math.min(index + 1, QUESTIONS.length - 1);
    else return advance();
    show();
    reveal();
  }

  function advance() {
    const following = data.items.map((_, index) => (state.at + 1 + index) % data.items.length);
    const open = following.find(index => !isComplete(index));
    if (open === undefined) {
      asked = QUESTIONS.length - 1;
      show();
      $("all-done").scrollIntoView({ block: "nearest" });
    } else go(open);
  }

  function go(item) {
    if (item < 0 || item >= data.items.length) return;
    keep();
    state.at = item;
    asked = Math.max(rated(item).indexOf(null), 0);
    keep();
    show();
    window.scrollTo(0, 0);
    for (const side of [0, 1]) $("answer-" + side).scrollTop = 0;
  }

  function reveal() {
    const box = document.querySelector(".asked");
    if (box) box.scrollIntoView({ block: "nearest" });
  }

  function gold() {
    if (!data.items[state.at].gold) return;
    state.gold[state.at] = true;
    $("gold-text").hidden = !$("gold-text").hidden;
    keep();
  }

  function exported() {
    const sides = values => [0, 1].map(side => Object.fromEntries(
      QUESTIONS.flatMap((question, index) => question.side === side ? [[question.name, values[index]]] : [])));
    const ratings = data.items.flatMap((_, item) => {
      const values = rated(item);
      if (values.every(value => value === null)) return [];
      const [first, second] = sides(values);
      const seconds = Math.round(10 * (state.seconds[item] || 0)) / 10;
      return [{ item, first, second, preference: values[QUESTIONS.length - 1], seconds, gold_seen: state.gold[item] === true }];
    });
    return JSON.stringify({ format: "blind-ratings/1", page: data.page, rater: state.rater, items: data.items.length, ratings }, null, 1);
  }

  function save() {
    keep();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([exported() + "\n"], { type: "application/json" }));
    link.download = "ratings-" + data.page.slice(0, 8) + "-" + (state.rater.replace(/[^A-Za-z0-9_-]+/g, "_") || "rater") + ".json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  const KEYS = {
    n: () => go(state.at + 1),
    p: () => go(state.at - 1),
    o: advance,
    g: gold,
    e: save,
    h: () => { $("help").open = !$("help").open; },
    t: () => { asSource = !asSource; show(); },
    Backspace: () => { asked = Math.max(asked - 1, 0); show(); reveal(); },
  };

  document.addEventListener("keydown", event => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
    const number = "123456789".indexOf(event.key);
    if (event.key.length === 1 && number >= 0) answer(asked, number);
    else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
    else return;
    event.preventDefault();
  });
  $("back").addEventListener("click", KEYS.p);
  $("next").addEventListener("click", KEYS.n);
  $("open").addEventListener("click", advance);
  $("gold-button").addEventListener("click", gold);
  for (const id of ["export", "export-done"]) $(id).addEventListener("click", save);
  $("as-text").addEventListener("toggle", show);
  $("rater").addEventListener("input", () => { state.rater = $("rater").value.trim() || nameless; keep(); });
  window.addEventListener("storage", event => { if (event.key === SLOT) { restore(false); show(); } });  // another tab
  window.addEventListener("beforeunload", event => { keep(); if (unsaved) event.preventDefault(); });

  restore(true);
  if (!state.rater) state.rater = "rater-" + Math.random().toString(36).slice(2, 8);
  const nameless = state.rater;
  $("rater").value = state.rater;
  $("help").open = !Object.keys(state.values).length;
  asked = Math.max(rated(state.at).indexOf(null), 0);
  show();
})();
