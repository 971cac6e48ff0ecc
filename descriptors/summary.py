"""What a run did: a mean never stands without its coverage, nor a column without its provenance."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Account", "ColumnSummary", "JudgeCounts", "RunSummary", "Tally", "TextCounts", "fingerprint"]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(kw_only=True)
class TextCounts:
    """What the embedders and extractors of a run were given.

    Attributes:
        distinct: Distinct texts that had to have a vector, or their entities told.
        encoded: Texts that a model read; the others were known.
        cut: Distinct texts of which a model read only the beginning.
    """

    distinct: int = 0
    encoded: int = 0
    cut: int = 0

    def __add__(self, other: "TextCounts") -> "TextCounts":
        return TextCounts(
            distinct=self.distinct + other.distinct, encoded=self.encoded + other.encoded, cut=self.cut + other.cut
        )


@dataclass(kw_only=True)
class JudgeCounts:
    """What the judges of a run were asked.

    Attributes:
        prompts: Distinct prompts; with `repeats`, each as often as it is to be answered.
        cached: Prompts whose answer was known.
        calls: Calls made, tries included. In an estimate: those that would be made if none had to be tried again.
        prompt_tokens: Tokens sent. In an estimate: a quarter of the prompts' bytes.
        completion_tokens: Tokens received.
        cost: US dollars; null where no price is known.
        saved: US dollars that the known answers had cost; null likewise.
        failures: Prompts without an answer that can be used, per status.
        messages: What was said of the first failure, per status.
    """

    prompts: int = 0
    cached: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    saved: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """One score column.

    Attributes:
        n_total: Rows.
        n_scored: Rows with a score.
        coverage: `n_scored / n_total`; null without rows.
        mean: The mean over scored rows; null if there are none. Read it with `coverage`.
        quantiles: From the share, such as "0.5", to the score; empty if nothing was scored.
        statuses: Rows per status.
        provenance: All that changes the scores: library, descriptor and its version, model, options.
        fingerprint: A short digest of `provenance`; scores with different ones must not be compared.
    """

    n_total: int
    n_scored: int
    coverage: float | None
    mean: float | None
    quantiles: Mapping[str, float]
    statuses: Mapping[str, int]
    provenance: Mapping[str, Any]
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a run did.

    Attributes:
        rows: Rows read, and rows written.
        columns: One summary per score column, by name.
        texts: What the embedders and extractors were given.
        judge: What the judges were asked.
        seconds: Wall time.
        version: The library's version.
    """

    rows: int
    columns: Mapping[str, ColumnSummary]
    texts: TextCounts
    judge: JudgeCounts
    seconds: float
    version: str

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return asdict(self)


@dataclass
class Tally:
    """The account of one score column while a run goes on: 8 bytes a scored row, and a count per status."""

    scores: list[np.ndarray[Any, np.dtype[np.float64]]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    n_total: int = 0

    def add(self, scores: pa.Array, statuses: pa.Array) -> None:
        """Count one batch."""
        self.n_total += len(scores)
        self.scores.append(scores.drop_null().cast(pa.float64()).to_numpy())
        self.statuses.update({str(pair["values"]): pair["counts"].as_py() for pair in pc.value_counts(statuses)})

    def merge(self, other: "Tally") -> None:
        """Count what another process counted, as if its rows followed."""
        self.n_total += other.n_total
        self.scores += other.scores
        self.statuses += other.statuses

    def summary(self, provenance: Mapping[str, Any]) -> ColumnSummary:
        """Return the summary of all batches."""
        scores = np.concatenate([np.empty(0), *self.scores])
        known = {str(q): float(np.quantile(scores, q)) for q in QUANTILES} if scores.size else {}
        return ColumnSummary(
            n_total=self.n_total,
            n_scored=scores.size,
            coverage=scores.size / self.n_total if self.n_total else None,
            mean=float(scores.mean()) if scores.size else None,
            quantiles=known,
            statuses=dict(sorted(self.statuses.items())),
            provenance=provenance,
            fingerprint=fingerprint(provenance),
        )


@dataclass
class Account:
    """What a run did so far, or did with one batch.

    Attributes:
        rows: Rows scored.
        tallies: One per score column, by name.
        texts: What the embedders were given.
        judge: What the judges were asked since the run began: one process asks them all, whose last word holds.
    """

    rows: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)
    texts: TextCounts = field(default_factory=TextCounts)
    judge: JudgeCounts = field(default_factory=JudgeCounts)

    def merge(self, other: "Account") -> None:
        """Add what was done next, in this process or another."""
        self.rows += other.rows
        self.texts += other.texts
        self.judge = other.judge
        for name, tally in other.tallies.items():
            self.tallies.setdefault(name, Tally()).merge(tally)

    def summary(self, provenance: Mapping[str, Mapping[str, Any]], seconds: float, version: str) -> RunSummary:
        """Return the summary of all that was merged; `provenance` is that of each score column."""
        columns = {name: self.tallies.get(name, Tally()).summary(made) for name, made in provenance.items()}
        return RunSummary(
            rows=self.rows, columns=columns, texts=self.texts, judge=self.judge, seconds=seconds, version=version
        )


def fingerprint(provenance: Mapping[str, Any]) -> str:
    """Return a short digest of what a column was made with."""
    text = json.dumps(provenance, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
