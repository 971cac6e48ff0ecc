import sys
from types import SimpleNamespace

import pytest

from rag_descriptors import progress
from rag_descriptors.progress import Progress


@pytest.fixture
def _at_once(monkeypatch):
    monkeypatch.setattr(progress, "DELAY_S", 0)


class Terminal:
    def __init__(self, is_terminal):
        self.written = ""
        self.isatty = lambda: is_terminal

    def write(self, text):
        self.written += text

    def flush(self):
        pass


def run(bar):
    bar.expect(3)
    bar.advance(2)
    bar.expect(4)
    bar.advance(5)
    bar.close()


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(
    ("show", "is_terminal", "is_shown"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_where_it_shows(monkeypatch, show, is_terminal, is_shown):
    stderr = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    run(Progress("texts", show))
    assert ("texts/s" in stderr.written) is is_shown


def test_short_work_shows_nothing(monkeypatch):
    stderr = Terminal(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", stderr)
    run(Progress("texts"))
    assert stderr.written == ""


def test_no_stderr_at_all(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    run(Progress("texts"))


@pytest.mark.parametrize(("kernel", "is_shown"), [({"kernel": 1}, True), ({}, False)])
def test_notebooks(monkeypatch, kernel, is_shown):
    monkeypatch.setattr(sys, "stderr", Terminal(is_terminal=False))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(**kernel)))
    assert Progress("texts")._show is is_shown


@pytest.mark.usefixtures("_at_once")
def test_the_end_moves_as_work_turns_up(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal(is_terminal=True))
    bar = Progress("texts")
    for expected, done in ((3, 2), (4, 1)):
        bar.expect(expected)
        bar.advance(done)
    assert (bar._bar.n, bar._bar.total) == (3, 7)
    bar.close()


def test_a_notebooks_bar_grows_too():
    bar = Progress("texts", show=True)
    label, shown = SimpleNamespace(), SimpleNamespace(max=3)
    bar._bar = SimpleNamespace(total=3, container=SimpleNamespace(children=(label, shown, label)))
    bar.expect(4)
    assert (bar._bar.total, shown.max) == (7, 7)


def test_nothing_to_do_opens_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal(is_terminal=True))
    bar = Progress("texts", show=True)
    bar.expect(0)
    assert bar._bar is None
    bar.close()
