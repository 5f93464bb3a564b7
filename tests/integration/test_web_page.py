# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page of wayback web in headless Chromium: with the mouse, on the width of a phone, and by keyboard alone."""
import base64
import json
import os
import time

import pytest

from chromium import PROGRAM, Chromium
from mounts import LIMIT, SECOND, moment, run
from web import Web

pytestmark = pytest.mark.skipif(not PROGRAM, reason="Chromium is not installed (scripts/install-deps --tests)")

RED = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
BAD = '<img src=x onerror="document.title=\'owned\'">'


@pytest.fixture(name="browser", scope="module")
def fixture_browser(tmp_path_factory):
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.end()


@pytest.fixture(name="made")
def fixture_made(mount):
    top = mount.path
    top.chmod(0o755)
    (top / "paper").mkdir()
    (top / "paper/draft").write_text("one\ntwo\nthree\n", encoding="ascii")
    (top / "paper/lost").write_text("found again\n", encoding="ascii")
    (top / "picture.png").write_bytes(RED)
    mount.when = moment()
    run("sed", "-i", "s/two/zwei/", top / "paper/draft")
    run("rm", top / "paper/lost")
    (top / "picture.png").write_bytes(RED + b"\0")
    (top / "new").write_text("new\n", encoding="ascii")
    return mount


@pytest.fixture(name="page")
def fixture_page(made, browser):
    with Web(made) as web:
        browser.web = web
        browser.open(web.document["url"])
        yield browser
        assert browser.faults == []
        # Nothing comes from elsewhere, and the token is in no address.
        for request in browser.asked:
            assert request["url"].startswith((f"http://{web.host}/", "blob:", "data:")), request
            assert web.token not in request["url"].partition("#")[0]
        browser.call("Target.disposeBrowserContext", browserContextId=browser.context)


def item(name):
    """The entry of a path in the tree."""
    return f'[role=treeitem][data-key="{name}"]'


def select(page, name, expect=None):
    page.click(f"{item(name)} > .row")
    page.wait(f"document.querySelector('#details h2').textContent === {json.dumps(name)}")
    if expect:
        page.wait(f"document.querySelector('.pane').textContent.includes({json.dumps(expect)})")


def open_paper(page):
    page.click(f"{item('paper')} .twist")
    page.wait(f"document.querySelector({json.dumps(item('paper/draft'))})")


def until(page, condition):
    """The page has no sign of it."""
    deadline = time.monotonic() + LIMIT / 10
    while not condition():
        page.run("1")
        assert time.monotonic() < deadline


def tree(page):
    return page.run("[...document.querySelectorAll('[role=treeitem]')].map(e => e.dataset.key)")


# ---- looking -----------------------------------------------------------------------------------


def test_the_tree_and_what_changed(page):
    """The token leaves the address, and a reload keeps it; names have marks; a selected file has versions and content."""
    assert page.run("location.hash") == ""
    page.call("Page.reload")
    page.wait("document.body && document.body.dataset.ready === 'yes'")
    open_paper(page)
    assert tree(page) == ["paper", "paper/draft", "paper/lost", "new", "picture.png"]
    assert page.run(f"document.querySelector({json.dumps(item('paper/lost'))}).getAttribute('aria-label')") == "lost, deleted"
    select(page, "paper/draft", "zwei")
    assert page.run("document.querySelectorAll('.version').length") == 2
    page.click(".version:nth-child(2)")
    page.wait("document.querySelector('.pane pre').textContent === 'one\\ntwo\\nthree\\n'")


def test_differences_of_texts_and_images(page):
    open_paper(page)
    select(page, "paper/draft", "zwei")
    page.click(".version:nth-child(2)")
    page.click(".tabs button:nth-child(2)")
    page.wait("document.querySelector('.diff .added')")
    assert page.run("[...document.querySelectorAll('.diff tr')].map(r => [...r.cells].map(c => c.textContent).join('|'))") == \
        ["1|1| |one", "2||-|two", "|2|+|zwei", "3|3| |three"]
    page.click(".version:nth-child(1)")
    page.click(".tabs button:nth-child(3)")
    page.wait("document.querySelector('.diff .removed .text')?.textContent === 'two'")
    select(page, "picture.png")
    page.click(".version:nth-child(1)")
    page.wait("document.querySelectorAll('.images img').length === 2")
    page.wait("[...document.querySelectorAll('.pane img')].every(i => i.complete && i.naturalWidth === 1)")
    page.run("(e => { e.value = 20; e.dispatchEvent(new Event('input')) })(document.querySelector('.wipe input'))")
    assert "20%" in page.run("document.querySelector('.stack img:last-child').style.clipPath")


def test_the_slider_shows_the_tree_then(page, made):
    """Step by step back and forth, by a time that is typed, and with the slider; the plot has the numbers of vlog."""
    changes = made.tool("vlog", "--json", made.path).stdout.splitlines()
    page.wait("document.querySelector('#legend .sum')")
    assert page.run("document.querySelector('#legend .sum').textContent") == f"{len(changes)} changes"
    assert page.run("[...document.querySelectorAll('#plot rect[data-count]')].reduce((s, r) => s + Number(r.dataset.count), 0)") == len(changes)
    programs = {}
    for change in map(json.loads, changes):
        name = os.path.basename(change["command"].split(" ")[0])
        programs[name] = programs.get(name, 0) + 1
    assert page.run("Object.fromEntries([...document.querySelectorAll('#legend .chip')].map(c => [c.innerText.split(/\\s/)[0], "
                    "Number(c.querySelector('b').textContent)]))") == programs
    open_paper(page)
    page.click("#time")
    page.type(str(made.when // 10**9) + f".{made.when % 10**9:09d}")
    page.key("Enter")
    page.wait(f"!document.querySelector({json.dumps(item('new'))})")
    page.wait("document.body.classList.contains('past')")
    assert tree(page) == ["paper", "paper/draft", "paper/lost", "picture.png"]
    select(page, "paper/draft", "two")
    page.click("#now")
    page.wait(f"document.querySelector({json.dumps(item('new'))})")
    page.click("#earlier")
    page.click("#earlier")
    page.wait(f"!document.querySelector({json.dumps(item('new'))}) || document.querySelector('{item('new')} .size').textContent === '0 B'")
    page.click("#later")
    page.click("#later")
    page.wait(f"document.querySelector('{item('new')} .size').textContent === '4 B'")
    page.run("(e => { e.value = 0; e.dispatchEvent(new Event('input')) })(document.querySelector('#slider'))")
    page.wait("document.querySelectorAll('[role=treeitem]').length === 0")


def test_a_program_has_its_changes(page):
    select(page, "paper")
    page.wait("document.querySelector('.log tr')")
    page.run("[...document.querySelectorAll('#legend button')].find(b => b.innerText.startsWith('rm')).click()")
    page.wait("document.querySelectorAll('.log tr').length === 1 && document.querySelector('.log').textContent.includes('lost')")


# ---- changing ----------------------------------------------------------------------------------


def test_restore_asks_and_can_be_undone(page, made):
    """It says what is lost; Cancel changes nothing; Undo asks as well."""
    lost = made.path / "paper/lost"
    page.click("#time")
    page.type(f"{made.when // 10**9}.{made.when % 10**9:09d}")
    page.key("Enter")
    page.wait(f"!document.querySelector({json.dumps(item('new'))})")
    select(page, "paper")
    page.click("#restore")
    page.wait("document.querySelector('#question[open]')")
    assert "paper as of" in page.run("document.querySelector('#question-title').textContent")
    assert "restore paper/lost" in page.run("document.querySelector('#question-text').textContent")
    page.click("#question-no")
    page.wait("document.querySelector('#message').textContent.includes('Nothing was changed')")
    assert not lost.exists()
    page.click("#restore")
    page.wait("document.querySelector('#question[open]')")
    page.click("#question-yes")
    page.wait("document.querySelector('#undo')")
    assert lost.read_text(encoding="ascii") == "found again\n"
    assert (made.path / "paper/draft").read_text(encoding="ascii") == "one\ntwo\nthree\n"
    page.click("#undo")
    page.wait("document.querySelector('#question[open]')")
    text = page.run("document.querySelector('#question-text').textContent")
    assert "1 name that did not exist then is removed" in text and "remove paper/lost" in text
    page.click("#question-yes")
    until(page, lambda: not lost.exists())
    assert "zwei" in (made.path / "paper/draft").read_text(encoding="ascii")


def test_download(page, tmp_path):
    page.download_to(tmp_path)
    open_paper(page)
    select(page, "paper/lost", "found again")
    page.click("#download")
    while "completed" not in page.downloads.values():
        page.run("1")
        assert "canceled" not in page.downloads.values()
    assert (tmp_path / "lost").read_text(encoding="ascii") == "found again\n"


# ---- hostile names -----------------------------------------------------------------------------


def test_names_and_texts_are_text(made, browser):
    odd = (BAD.encode(), b"caf\xe9", b"line\nbreak", "a\u202etxt.exe".encode(), b"javascript:alert(1)", b"%2e%2e&x=1#y?")
    (made.path / "odd").mkdir()
    for name in odd:
        with open(os.fsencode(made.path / "odd") + b"/" + name, "wb") as stream:
            stream.write(BAD.encode() + b"\n\x1b[31m\xff\n")
    with Web(made) as web:
        browser.open(web.document["url"])
        browser.click(f"{item('odd')} .twist")
        browser.wait("document.querySelectorAll('[aria-level=\"2\"]').length === 6")
        shown = browser.run("[...document.querySelectorAll('[aria-level=\"2\"] .name')].map(e => e.textContent)")
        assert BAD in shown and "line\\nbreak" in shown and not any(c in "".join(shown) for c in "\n\u202e\x1b")
        for number in range(1, 7):
            browser.run(f"document.querySelectorAll('[aria-level=\"2\"] > .row')[{number - 1}].click()")
            browser.wait("document.querySelector('.pane pre')?.textContent.includes('onerror')")
            browser.wait("document.querySelector('#details h2').textContent.slice(4) === "
                         f"document.querySelectorAll('[aria-level=\"2\"] .name')[{number - 1}].textContent")
        assert browser.run("document.title") != "owned" and browser.run("document.querySelectorAll('main img').length") == 0
        assert browser.faults == []


# ---- rights, phones, keys ----------------------------------------------------------------------


def test_a_user_is_told_their_rights(made, browser):
    private = made.path / "private"
    private.mkdir(mode=0o700)
    (private / "hidden").write_text("hidden\n", encoding="ascii")
    with Web(made, "--read-only", user=SECOND) as web:
        browser.open(web.document["url"])
        assert str(SECOND[0]) in browser.run("document.querySelector('#rights').textContent")
        assert "read-only" in browser.run("document.querySelector('#rights').textContent")
        browser.click(f"{item('private')} .twist")
        browser.wait("document.querySelector('#message.wrong')")
        assert "hidden" not in browser.run("document.body.innerText")
        assert browser.faults == []


def test_without_a_token(made, browser):
    with Web(made) as web:
        browser.open(web.document["url"])
        for address in ("", "#token=" + "0" * 64):
            browser.call("Page.navigate", url="about:blank")
            browser.wait("location.href === 'about:blank'")
            browser.call("Page.navigate", url=f"http://{web.host}/{address}" if address else f"http://localhost:{web.port}/")
            browser.wait("document.querySelector('#message.wrong')?.textContent.includes('token is')")
            assert browser.run("document.querySelector('main').hidden")


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(made, browser, width):
    long_name = "a-name-that-is-very-long-and-has-no-place-to-be-broken-" * 3
    (made.path / long_name).write_text("x" * 500 + "\n", encoding="ascii")
    with Web(made) as web:
        browser.open(web.document["url"], width=width, height=740)
        for name in (long_name, "paper", "picture.png"):
            select(browser, name)
            browser.wait("document.querySelector('.pane').childElementCount > 0")
            assert browser.run("document.documentElement.scrollWidth") <= width
        small = browser.run("[...document.querySelectorAll('button, select, .row, input')].filter(e => e.offsetParent && "
                            "e.getBoundingClientRect().height < 24).map(e => e.outerHTML)")
        assert small == []
        if width == 360:  # one below the other
            assert browser.run("document.querySelector('#details').getBoundingClientRect().top >= "
                               "document.querySelector('#tree').getBoundingClientRect().bottom")
            browser.click(f"{item('paper')} .twist")
            select(browser, "paper/lost", "found again")
            browser.click("#restore")
            browser.wait("document.querySelector('#question[open]')")
            assert browser.run("document.querySelector('#question').getBoundingClientRect().right") <= width
            browser.click("#question-yes")
            browser.wait("document.querySelector('#undo')")
            assert (made.path / "paper/lost").exists()
        assert browser.faults == []


def focused(page):
    return page.run("(e => e.id || e.dataset.key || e.className || e.tagName)(document.activeElement)")


def tab_to(page, wanted):
    """Tab until it has the focus, which can be seen."""
    for _ in range(60):
        page.key("Tab")
        if page.run(f"document.activeElement.matches({json.dumps(wanted)})"):
            return page.run("document.activeElement.matches(':focus-visible')")
    raise AssertionError(focused(page))


def test_by_keyboard_alone(page, made):
    """Find a deleted file, look at it, compare, restore and undo: without a mouse."""
    assert tab_to(page, "#slider")
    page.key("Home")
    page.wait("document.querySelectorAll('[role=treeitem]').length === 0")
    assert page.run("document.querySelector('#slider').getAttribute('aria-valuetext')") != "now"
    page.key("End")
    page.wait("document.querySelectorAll('[role=treeitem]').length === 3")
    assert tab_to(page, "[role=treeitem]")
    page.key("Home", "ArrowRight")
    page.wait(f"document.querySelector({json.dumps(item('paper/lost'))})")
    page.key("ArrowDown", "ArrowDown")
    assert focused(page) == "paper/lost"
    page.key("Enter")
    page.wait("document.querySelector('.pane pre')?.textContent.includes('found again') || document.querySelector('.pane .hint')")
    assert tab_to(page, ".version")
    page.key("End")
    page.wait("document.querySelector('.version:last-of-type').getAttribute('aria-selected') === 'true'")
    page.wait("document.querySelector('.pane pre')?.textContent === 'found again\\n'")
    page.key("d")
    page.wait("document.querySelector('.diff .removed')")
    page.key("v", "r")
    page.wait("document.querySelector('#question[open]')")
    assert focused(page) == "question-no"  # so that Enter alone changes nothing
    page.key("Escape")
    page.wait("document.querySelector('#message').textContent.includes('Nothing was changed')")
    page.key("r")
    page.wait("document.querySelector('#question[open]')")
    page.key("Tab", "Enter")
    page.wait("document.querySelector('#undo')")
    assert (made.path / "paper/lost").exists()
    page.key("u")
    page.wait("document.querySelector('#question[open]')")
    page.key("Tab", "Enter")
    page.wait("!document.querySelector('#question[open]')")
    # The row may not show yet that the file was restored.
    deadline = time.monotonic() + LIMIT
    while (made.path / "paper/lost").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    page.wait(f"document.querySelector('{item('paper/lost')} .row').classList.contains('deleted')")
    page.key("[")
    page.wait("document.body.classList.contains('past')")
    page.key("n")
    page.wait("!document.body.classList.contains('past')")
    page.key("Shift+?")
    page.wait("document.querySelector('#keys[open]')")
    page.key("Escape")
    page.key("t")
    page.wait("document.activeElement.id === 'time'")
