"""Places for files: where one can be made, and how it takes its name only when it is whole."""

import errno
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from rag_descriptors.errors import OptionError

__all__ = ["check_place", "replacing", "told"]

SECONDS_A_DAY = 86_400
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG)


def check_place(option: str, path: Path) -> None:
    """Make sure that there can be a file of this name.

    Raises:
        OptionError: Its folder is not there or can't be written to, or it is a folder itself.
    """
    if path.is_dir():
        raise OptionError(f"{option} {str(path)!r} is a folder. Give the name of a file.")
    folder = _target(path).parent
    if not folder.is_dir():
        raise OptionError(f"{option} {str(path)!r}: the folder {str(folder)!r} is not there. Make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(
            f"{option} {str(path)!r}: no file can be written into the folder {str(folder)!r}. Give another place, or "
            "let yourself write there."
        )


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file beside `path` that replaces it when the block ends without an error.

    Of two processes that write to one name, each has a temporary file of its own, and the last to end has the name. The
    target of a link is replaced, not the link. A temporary file that a killed process left behind is removed: at once
    where the process ran here and is gone, and where that can't be told, once nothing was written to it for a day.

    Raises:
        OSError: The file can't be written; an earlier one is as it was.
    """
    target = _target(path)
    with told(path):
        _remove_parts(target)
        file = NamedTemporaryFile(  # noqa: SIM115 - closed below, before it takes its name
            dir=target.parent, prefix=f".{target.name}.{_host()}-{os.getpid()}-", suffix=".part", delete=False
        )
    try:
        yield file
        with told(path):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(target)
    except BaseException:
        with suppress(OSError):  # what is still to be written may not fit either
            file.close()
        Path(file.name).unlink(missing_ok=True)
        raise


def _remove_parts(target: Path) -> None:
    for part in target.parent.glob(f".{escape(target.name)}.*.part"):
        with suppress(OSError):  # another run removed it, or it is somebody else's to remove
            is_running = _is_running(part)
            if is_running is False or (is_running is None and time.time() - part.stat().st_mtime > SECONDS_A_DAY):
                part.unlink()


def _is_running(part: Path) -> bool | None:
    """Return whether the process whose temporary file this is still runs; None if that can't be told from here."""
    found = re.search(rf"\.{_host()}-(\d+)-\w+\.part$", part.name)
    if found is None or os.name != "posix":  # elsewhere to ask for a process may end it
        return None
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _host() -> str:
    """Return this machine's name; a number of a process says nothing on another one that shares the folder."""
    return re.sub(r"\W", "_", platform.node())[:32]


def _target(path: Path) -> Path:
    return path.resolve() if path.is_symlink() else path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Name the file in what the system says of it."""
    try:
        yield
    except OSError as error:
        way = "Free some space, or give another place" if error.errno in FULL else "Give another place"
        raise OSError(
            error.errno,
            f"{path} can't be written: {error.strerror or error}. Nothing of it was written, and a file that was there "
            f"before is as it was. {way}, and run again.",
        ) from error
