"""Files that appear only when they are whole."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from rag_descriptors.errors import OptionError
from rag_descriptors.jobs.places import _host, _is_running, check_place, replacing, told


def test_an_earlier_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "t"
    path.write_text("old")
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(KeyboardInterrupt))
        file = stack.enter_context(replacing(path))
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
        raise KeyboardInterrupt
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])
    with replacing(path) as file:
        file.write(b"new")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("new", [path])


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "t") as file:
            file.write(b"x")
        assert os.umask(umask) == umask  # which is left as it was
    finally:
        os.umask(before)
    assert (tmp_path / "t").stat().st_mode & 0o777 == mode


def test_a_full_disk_is_told_by_the_files_name(tmp_path):
    with pytest.raises(OSError, match=r"out.csv can't be written: No .*Free some space"), told(tmp_path / "out.csv"):
        raise OSError(28, "No space left on device")
    with pytest.raises(OSError, match=r"out.csv can't be written: odd\. .*Give an"), told(tmp_path / "out.csv"):
        raise OSError("odd")


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    """As root no mode keeps anybody from writing, so what the system says is said here."""
    monkeypatch.setattr(os, "access", lambda folder, mode: not mode & os.W_OK)
    with pytest.raises(OptionError, match=r"summary '.*s\.json': no file can be written into the folder '.*'\. Give"):
        check_place("summary", tmp_path / "s.json")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nobody can write into /proc")
def test_a_temporary_file_that_cannot_be_made_is_told_by_the_files_name():
    with pytest.raises(OSError, match=r"/proc/t\.json can't be written: No such file.* Give another place"):
        replacing(Path("/proc/t.json")).__enter__()


@pytest.mark.skipif(os.name != "posix", reason="asks for processes")
def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(30)
    names = [f".t.csv.{_host()}-{gone.pid}-x.part", f".t.csv.{_host()}-{os.getpid()}-x.part"]
    names += [f".t.csv.{_host()}-1-x.part", f".t.csv.other-host-{gone.pid}-x.part"]
    names += [f".u.csv.{_host()}-{gone.pid}-x.part", f".t.csv.{_host()}-{gone.pid}.part"]
    for name in names:
        (tmp_path / name).touch()
    old = [f".t.csv.{_host()}-{os.getpid()}-old.part", f".t.csv.other-host-{gone.pid}-old.part"]
    for name in old:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    with replacing(tmp_path / "t.csv") as file:
        assert Path(file.name).name.startswith(f".t.csv.{_host()}-{os.getpid()}-")
    assert {path.name for path in tmp_path.iterdir()} == {*names[1:], old[0], "t.csv"}


def test_what_is_somebody_elses_to_remove_stays(tmp_path, monkeypatch):
    part = tmp_path / ".t.csv.other-host-1-x.part"
    part.touch()
    os.utime(part, (0, 0))

    def refuses(self, **_):
        if self == part:
            raise PermissionError

    monkeypatch.setattr(Path, "unlink", refuses)
    with replacing(tmp_path / "t.csv") as file:
        file.write(b"x")
    assert (part.exists(), (tmp_path / "t.csv").read_text()) == (True, "x")


def test_a_process_of_somebody_else_runs(monkeypatch):
    def refuses(*_):
        raise PermissionError

    part = Path(f".t.csv.{_host()}-1-x.part")
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refuses)
        assert _is_running(part) is True
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")  # where to ask for a process may end it
        is_running = _is_running(part)
    assert is_running is None
