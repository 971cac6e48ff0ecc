"""Print README's table of benchmarks from results/*.json; `--write` puts it into README, `--check` compares."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from common import BENCHMARKS, ROOT, Line, markdown

ORDER = (
    "relevance_vs_evidently_distinct",
    "relevance_vs_evidently_log",
    "backends",
    "warm_run",
    "memory",
    "overhead",
    "judging",
    "agreement",
    "sentences",
    "entity_recall",
    "entity_throughput",
)
START, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=BENCHMARKS / "results", help="folder of the results")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--write", action="store_true", help="put it into README")
    parser.add_argument("--check", action="store_true", help="fail if another table stands there")
    arguments = parser.parse_args()
    table = benchmarks_table(arguments.results)
    print(table)
    if arguments.write or arguments.check:
        before = arguments.readme.read_text("utf-8")
        after = with_table(before, table)
        if arguments.write:
            arguments.readme.write_text(after, "utf-8")
        elif after != before:
            sys.exit(f"{arguments.readme} holds another table. Run benchmarks/table.py --write.")


def benchmarks_table(folder: Path) -> str:
    """Return the lines of all results as one table, and below it where and when each was measured."""
    paths = [folder / f"{name}.json" for name in ORDER]
    results = [json.loads(path.read_text("utf-8")) for path in paths if path.exists()]
    if not results:
        sys.exit(f"no results in {folder}. Run a benchmark first.")
    lines = [Line(**line) for result in results for line in result["lines"]]
    return markdown(lines) + "\n\n" + "\n".join(map(circumstances, results))


def circumstances(result: dict[str, Any]) -> str:
    """Return where, when and with what a result was measured."""
    machine, versions = result["machine"], result["versions"]
    return (
        f"- `{result['benchmark']}`: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB, "
        f"Python {versions['python']}, {result['date'][:10]}, commit {result['commit'][:7]}."
    )


def with_table(readme: str, table: str) -> str:
    """Return README with the table between the markers."""
    head, start, rest = readme.partition(START)
    _, end, tail = rest.partition(END)
    if not (start and end):
        sys.exit(f"README has no lines {START} and {END} to put the table between.")
    return f"{head}{START}\n\n{table}\n\n{END}{tail}"


if __name__ == "__main__":
    main()
