"""A headless Chromium without network for the tests of pages; where there is none, they are skipped and it is said."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = [
    *([] if importlib.util.find_spec("playwright") else ["playwright (pip install 'stepwise-ppo[browser]')"]),
    *([] if CHROMIUM else ["chromium (apt-get install chromium)"]),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if MISSING:
        message = f"the pages are not tried in a browser: no {' and no '.join(MISSING)}"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


def opened(browser: Any, file: Any, width: int = 1280, height: int = 900, context: Any = None) -> tuple[Any, list[str]]:
    """A page without network, and the list into which its errors and console messages go."""
    context = context or browser.new_context(
        viewport={"width": width, "height": height}, offline=True, accept_downloads=True
    )
    context.set_default_timeout(20_000)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else said.append(request.url),
    )
    page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.goto(f"file://{file}")
    return page, said


FAULTS = """() => {
  const faults = [];
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page is wider than the screen");
  const isOpen = element => element.checkVisibility() && element.getClientRects().length;
  const watched = "p, summary, td, th, b, span, button, a, label, h1, h2, h3, li, dd, dt, figcaption, select";
  for (const element of document.querySelectorAll(watched)) {
    if (!isOpen(element) || element.closest("svg, .scroll, .text, .one-line")) continue;
    const style = getComputedStyle(element);
    if (element.scrollWidth > element.clientWidth + 1 && style.display !== "inline" && element.clientWidth) {
      faults.push("clipped: " + element.tagName + " " + element.textContent.trim().slice(0, 60));
    }
    const box = element.getBoundingClientRect();
    if (box.right > innerWidth + 1 || box.left < -1) faults.push("outside: " + element.textContent.trim().slice(0, 60));
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (!isOpen(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
    texts.forEach(([words, box], index) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1) faults.push("outside its chart: " + words);
      for (const [other, its] of texts.slice(index + 1)) {
        const across = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const down = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        const overlap = across > 1 && down > 3;
        if (overlap) faults.push("overlap: " + words + " | " + other + " in " + svg.getAttribute("aria-label"));
      }
    });
  }
  return faults;
}"""
"""Script that lists what is clipped, covered, or outside of its place."""
