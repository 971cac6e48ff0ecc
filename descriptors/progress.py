"""A progress bar on stderr: on a terminal or in a notebook, for work of more than two seconds."""

import sys
from typing import Any

__all__ = ["Progress"]

DELAY_S = 2


class Progress:
    """A bar whose end moves as work turns up.

    Args:
        show: Whether to show it; None decides by what stderr is.
    """

    def __init__(self, unit: str, show: bool | None = None) -> None:
        self._unit = unit
        self._show = _has_viewer() if show is None else show
        self._bar: Any = None

    def expect(self, n: int) -> None:
        """Add `n` units of work to be done."""
        if self._show and n:
            if self._bar is None:
                self._bar = self._open(n)
            else:
                self._grow(n)

    def advance(self, n: int) -> None:
        """Count `n` units as done."""
        if self._bar is not None:
            self._bar.update(n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()

    def _grow(self, n: int) -> None:
        self._bar.total += n
        widgets = getattr(self._bar, "container", None)  # a notebook's
        if widgets is not None:
            widgets.children[1].max = self._bar.total

    def _open(self, n: int) -> Any:
        from tqdm.auto import tqdm  # noqa: PLC0415 - asks at import what it is shown in

        return tqdm(total=n, unit=f" {self._unit}", delay=DELAY_S, file=sys.stderr, leave=False)


def _has_viewer() -> bool:
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None
    return in_notebook or (sys.stderr is not None and sys.stderr.isatty())
