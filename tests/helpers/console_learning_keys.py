"""Steps of a visit to the console's page Learning without a mouse: only keys are pressed."""

import json
from typing import Any

from tests.helpers.console import Console

CODES = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowDown": 40}
TEXTS = {"Enter": "\r", " ": " "}
SHIFT = 8

PLACE = "$('#page-learning')"
STOPS = (
    f"[...{PLACE}.querySelectorAll('a[href], button, input, select, textarea, summary, "
    '[tabindex="0"]\')].filter(e => e.checkVisibility() && !e.disabled && e.tabIndex >= 0)'
)
"""What Tab should reach, in the order of the page."""

STOP = f"""(() => {{
  const e = document.activeElement;
  if (!{PLACE}.contains(e)) return null;
  const box = e.getBoundingClientRect();
  const style = getComputedStyle(e);
  return {{
    place: {STOPS}.indexOf(e),
    says: e.tagName + ' ' + (e.id || e.getAttribute('aria-label') || e.innerText).slice(0, 40),
    isOutlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    isOnScreen: box.width > 0 && box.top < innerHeight && box.bottom > 0
      && box.left < innerWidth && box.right > 0,
  }};
}})()"""
"""Where the focus is in the page, and whether a reader sees it."""


def press_key(page: Console, key: str, modifiers: int = 0) -> None:
    event: dict[str, Any] = {
        "key": key,
        "code": "Space" if key == " " else key,
        "windowsVirtualKeyCode": CODES[key],
        "modifiers": modifiers,
    }
    text = {"text": TEXTS[key]} if key in TEXTS else {}
    kind = "keyDown" if text else "rawKeyDown"
    page.call("Input.dispatchKeyEvent", type=kind, **event, **text)
    page.call("Input.dispatchKeyEvent", type="keyUp", **event)


def type_keys(page: Console, text: str) -> None:
    page.call("Input.insertText", text=text)


def tab_to(page: Console, element: str) -> None:
    """Press Tab from the beginning of the page until an element has the focus."""
    page.run(f"{PLACE}.querySelector('h1').tabIndex = -1; {PLACE}.querySelector('h1').focus()")
    for _ in range(page.run(f"{STOPS}.length")):
        press_key(page, "Tab")
        if page.run(f"document.activeElement === {element}"):
            return
    raise AssertionError(f"expected Tab to reach {element}, found that it did not")


def focus_is(page: Console, element: str) -> None:
    page.wait(f"document.activeElement === {element}")


def tab_goes_through_the_page_in_its_order(page: Console) -> None:
    """Every field, button and table is reached once, in order, and is seen; back again, too."""
    for width in (1280, 390):
        page.look(width)
        page.run(f"{PLACE}.querySelector('h1').tabIndex = -1; {PLACE}.querySelector('h1').focus()")
        n_stops = page.run(f"{STOPS}.length")
        assert n_stops > 40
        for place in range(n_stops):
            press_key(page, "Tab")
            stop = page.run(STOP)
            assert stop is not None and stop["place"] == place, (width, place, stop)
            assert stop["isOutlined"] and stop["isOnScreen"], (width, stop)
        press_key(page, "Tab", SHIFT)
        assert page.run(STOP)["place"] == n_stops - 2
    page.look()


def keys_open_and_close_what_is_folded(page: Console) -> None:
    recipe = f"[...{PLACE}.querySelectorAll('summary')].find(e => e.textContent === 'Recipe')"
    tab_to(page, recipe)
    for key, is_open in (("Enter", True), (" ", False)):
        press_key(page, key)
        page.wait(f"{recipe}.parentElement.open === {json.dumps(is_open)}")
    details = "$('#runs tbody button')"
    tab_to(page, details)
    for key in ("Enter", " "):
        press_key(page, key)
        page.shows("dialog", "Learnt for the first time")
        press_key(page, "Escape")
        page.count("dialog", 0)
        focus_is(page, details)


def keys_read_more_and_delete_a_sender(page: Console, n_shop: int, n_all: int) -> None:
    page.count("#corrections li > .row .danger", 20)
    tab_to(page, "$('#more-corrections')")
    press_key(page, " ")
    page.count("#corrections li > .row .danger", n_all)
    assert page.run("$('#more-corrections').hidden")
    focus_is(page, "$('#corrections-told')")  # not lost with the button
    page.shows("#corrections-told", f"{n_all} are shown. {n_all} corrections are stored.")

    delete_all = "[...$$('button')].find(e => e.textContent.startsWith('Delete all of'))"
    assert page.run(f"{delete_all}.hidden")
    tab_to(page, "$('#correction-key')")
    type_keys(page, "shop")
    page.shows("#corrections-told", "20 that fit are shown")
    page.wait("!$('#more-corrections').hidden")
    tab_to(page, "$('#more-corrections')")
    press_key(page, "Enter")
    page.shows("#corrections-told", f"{n_shop} that fit are shown")
    tab_to(page, delete_all)
    press_key(page, "Enter")
    page.shows("dialog", "All rows of m that the key shop sent are deleted")
    press_key(page, "Escape")
    page.count("dialog", 0)
    focus_is(page, delete_all)
    press_key(page, "Enter")
    focus_is(page, "$('dialog .close')")
    press_key(page, "Tab")
    focus_is(page, "$('dialog > .danger')")
    press_key(page, "Enter")
    page.count("dialog", 0)
    page.shows("#corrections", "No correction fits.")
    focus_is(page, "$('#corrections-told')")
    page.shows("#corrections-told", f"{n_all - n_shop} corrections are stored")
    page.fill("#correction-key", "")
    page.count("#corrections li > .row .danger", n_all - n_shop)


def keys_choose_a_label_and_forget_it(page: Console) -> None:
    tab_to(page, "$('#correction-label')")
    type_keys(page, "snow")
    page.wait("!$('#correction-label-names').hidden")
    press_key(page, "ArrowDown")
    press_key(page, "Enter")
    page.shows("#correction-filter", "snow owl")
    remove = "$('#correction-filter button')"
    tab_to(page, remove)
    press_key(page, " ")
    page.count("#correction-filter button", 0)
    focus_is(page, "$('#corrections-told')")


def keys_write_a_name_in_another_language(page: Console) -> None:
    another = (
        f"[...{PLACE}.querySelectorAll('button')].find(e => e.textContent.startsWith('Another l'))"
    )
    tab_to(page, another)
    press_key(page, "Enter")
    page.count("#concept-names > *", 2)
    focus_is(page, "$('#concept-names > :last-child input')")
    type_keys(page, "fi")
    press_key(page, "Tab")
    focus_is(page, "$('#concept-names > :last-child textarea')")
