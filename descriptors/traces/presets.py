"""What the exports of other tools look like: column names, and where spans keep what a row needs.

Data only. `readers.py` takes a preset by its name; `spans.py` reads spans by a `SpanForm`. A path is a column, or keys
inside each other with dots between them; of several paths the first that holds anything counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rag_descriptors.traces.paths import ABSENT, lookup

__all__ = ["KNOWN_COLUMNS", "PRESETS", "Form", "RowForm", "SpanForm", "find_column", "fits"]

KNOWN_COLUMNS = {
    "question": ("question", "user_input", "input", "query", "prompt", "query_str"),
    "contexts": (
        "contexts",
        "retrieved_contexts",
        "retrieval_context",
        "retrievalContext",
        "retrieved_docs",
        "source_documents",
        "source_nodes",
        "documents",
        "context",
    ),
    "response": ("response", "answer", "actual_output", "actualOutput", "output", "result"),
    "reference": (
        "reference",
        "ground_truth",
        "expected_output",
        "expectedOutput",
        "expected_response",
        "reference_answer",
        "target",
    ),
}


def find_column(kind: str, columns: Sequence[str]) -> str | None:
    """Return the first known name for `kind`, a key of `KNOWN_COLUMNS`, among `columns`; None if there is none."""
    return next((name for name in KNOWN_COLUMNS[kind] if name in columns), None)


@dataclass(frozen=True, kw_only=True)
class RowForm:
    """A file with one row a trace: columns take other names, all else stays.

    Attributes:
        marks: Groups of columns; a file that has all of one group is recognised.
        columns: Our name → the names it has there; the first that is there is taken.
        lists: Columns whose cells are lists of texts where one text is wanted; they are joined by line breaks.
        separator: What stands between the contexts of a cell in CSV files.
        wrapped: The key of an object in each row that holds the columns.
    """

    marks: tuple[tuple[str, ...], ...]
    columns: Mapping[str, tuple[str, ...]]
    lists: tuple[str, ...] = ()
    separator: str | None = None
    wrapped: str | None = None


@dataclass(frozen=True, kw_only=True)
class SpanForm:
    """A file with one row a span, or a document, or with rows that hold spans.

    Attributes:
        marks: Groups of paths; a file with a span that has all of one group is recognised.
        without: Paths whose presence says that the form is another one.
        wrapped: Keys of lists inside each other that hold the spans, outermost first, each with its spellings.
        held: Paths of the spans where each row is a trace that holds them; the row itself then counts as the root.
        trace_id: Paths of the trace's id; so for `span_id`, `parent_id` and `start`, the time.
        root: Paths of a flag that says that a span is its trace's root; without one, a root is a span with no parent.
        kind: Paths of the span's kind, which is compared with `retriever` and `answer` regardless of case.
        retriever: The kinds that retrieve; empty where all do.
        reranker: The kinds that put documents in another order; they are counted, not used.
        answer: The kinds whose output is the response where the root has none.
        query: Paths of a retriever's question, tried before those of `question`.
        question: Paths of the input in the root.
        response: Paths of the output in the root, or in an answering span.
        reference: Paths of the reference in the root.
        documents: Paths of the documents in a retriever.
        position: Paths of a document's place among those of its span, where each row is a document.
        score: Paths of its score.
    """

    marks: tuple[tuple[str, ...], ...]
    without: tuple[str, ...] = ()
    wrapped: tuple[tuple[str, ...], ...] = ()
    held: tuple[str, ...] = ()
    trace_id: tuple[str, ...]
    span_id: tuple[str, ...]
    parent_id: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    root: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    retriever: tuple[str, ...] = ()
    reranker: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    question: tuple[str, ...]
    response: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    documents: tuple[str, ...]
    position: tuple[str, ...] = ()
    score: tuple[str, ...] = ()


Form = RowForm | SpanForm

OTLP = (
    ("resourceSpans", "resource_spans"),
    ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"),
    ("spans",),
)
TRACE_ID = ("traceId", "trace_id", "context.trace_id")
SPAN_ID = ("spanId", "span_id", "context.span_id")
PARENT_ID = ("parentSpanId", "parent_span_id", "parent_id")
START = ("startTimeUnixNano", "start_time_unix_nano", "start_time_ns", "start_time")

RAGAS = RowForm(
    marks=(
        ("user_input", "retrieved_contexts"),
        ("user_input", "response"),
        ("user_input", "reference"),
        ("question", "contexts", "answer"),
        ("question", "contexts", "ground_truth"),
        ("question", "contexts", "ground_truths"),
    ),
    columns={
        "question": ("user_input", "question"),
        "contexts": ("retrieved_contexts", "contexts"),
        "context_ids": ("retrieved_context_ids",),
        "response": ("response", "answer"),
        "reference": ("reference", "ground_truth", "ground_truths"),
    },
    lists=("ground_truths",),
)

DEEPEVAL = RowForm(
    marks=(
        ("input", "retrieval_context"),
        ("input", "actual_output"),
        ("input", "retrievalContext"),
        ("input", "actualOutput"),
    ),
    columns={
        "question": ("input",),
        "contexts": ("retrieval_context", "retrievalContext"),
        "response": ("actual_output", "actualOutput"),
        "reference": ("expected_output", "expectedOutput"),
        "reference_contexts": ("context",),
    },
    separator="|",
)

EVIDENTLY = RowForm(
    marks=(
        ("question", "context", "response"),
        ("question", "contexts", "response"),
        ("question", "context", "target"),
    ),
    columns={
        "question": ("question", "query", "input"),
        "contexts": ("contexts", "context", "retrieved_docs"),
        "response": ("response", "answer", "output"),
        "reference": ("reference", "target", "target_response"),
    },
)

LANGCHAIN = RowForm(
    marks=(("source_documents",), ("input", "context", "answer")),
    columns={
        "question": ("input", "query", "question"),
        "contexts": ("context", "source_documents", "documents"),
        "response": ("answer", "result", "output"),
        "reference": ("reference", "ground_truth"),
    },
)

LLAMAINDEX = RowForm(
    marks=(("source_nodes",), ("query", "contexts", "response"), ("query", "reference_answer")),
    columns={
        "question": ("query", "query_str"),
        "contexts": ("source_nodes", "contexts"),
        "response": ("response",),
        "reference": ("reference_answer", "reference"),
    },
)

HAYSTACK = RowForm(
    marks=(("query", "documents"), ("questions", "contexts", "predicted_answers")),
    columns={
        "question": ("query", "questions", "question"),
        "contexts": ("documents", "contexts"),
        "response": ("data", "replies", "predicted_answers", "answer"),
        "reference": ("ground_truth_answers", "ground_truth"),
    },
    lists=("replies",),
)

HAYSTACK_DICT = replace(HAYSTACK, marks=(("type", "init_parameters"),), wrapped="init_parameters")

LANGFUSE = SpanForm(
    marks=(
        ("traceId", "type", "parentObservationId"),
        ("traceId", "type", "isRootObservation"),
        ("trace_id", "type", "parent_observation_id"),
        ("trace_id", "type", "is_root_observation"),
    ),
    wrapped=(("data",),),
    trace_id=("traceId", "trace_id"),
    span_id=("id",),
    parent_id=("parentObservationId", "parent_observation_id"),
    start=("startTime", "start_time"),
    root=("isRootObservation", "is_root_observation"),
    kind=("type",),
    retriever=("retriever",),
    answer=("generation",),
    question=("input",),
    response=("output",),
    reference=("expectedOutput", "expected_output"),
    documents=("output.documents", "output.output", "output"),
)

PHOENIX_SPANS = SpanForm(
    marks=(("context.trace_id", "span_kind"),),
    trace_id=("context.trace_id",),
    span_id=("context.span_id",),
    parent_id=("parent_id",),
    start=("start_time",),
    kind=("span_kind", "attributes.openinference.span.kind"),
    retriever=("retriever",),
    reranker=("reranker",),
    answer=("llm",),
    question=("attributes.input.value",),
    response=("attributes.output.value", "attributes.llm.output_messages"),
    documents=("attributes.retrieval.documents", "attributes.retrieval.documents.contents"),
)

PHOENIX_DOCUMENTS = SpanForm(
    marks=(("document_position", "input"),),
    trace_id=("context.trace_id", "trace_id", "context.span_id"),
    span_id=("context.span_id", "span_id"),
    question=("input",),
    documents=("document", "reference"),
    position=("document_position",),
    score=("document_score",),
)

PHOENIX_JOINED = RowForm(
    marks=(("input", "output", "context"), ("context.span_id", "input", "output", "reference")),
    columns={
        "trace_id": ("context.trace_id",),
        "span_id": ("context.span_id",),
        "question": ("input",),
        "contexts": ("context", "reference"),
        "response": ("output",),
    },
)

OPENINFERENCE = SpanForm(
    marks=(("attributes.openinference.span.kind",),),
    without=("span_kind",),
    wrapped=OTLP,
    trace_id=TRACE_ID,
    span_id=SPAN_ID,
    parent_id=PARENT_ID,
    start=START,
    kind=("attributes.openinference.span.kind",),
    retriever=("retriever",),
    reranker=("reranker",),
    answer=("llm",),
    question=("attributes.input.value",),
    response=("attributes.output.value", "attributes.llm.output_messages"),
    documents=("attributes.retrieval.documents", "attributes.retrieval.documents.contents"),
)

OTEL_GENAI = SpanForm(
    marks=(("attributes.gen_ai.operation.name",), ("attributes.gen_ai.retrieval.documents",)),
    wrapped=OTLP,
    trace_id=TRACE_ID,
    span_id=SPAN_ID,
    parent_id=PARENT_ID,
    start=START,
    kind=("attributes.gen_ai.operation.name",),
    retriever=("retrieval",),
    answer=("chat", "generate_content", "text_completion", "invoke_agent"),
    query=("attributes.gen_ai.retrieval.query.text",),
    question=("attributes.gen_ai.input.messages",),
    response=("attributes.gen_ai.output.messages",),
    documents=("attributes.gen_ai.retrieval.documents",),
)

LANGSMITH = SpanForm(
    marks=(("trace_id", "run_type"),),
    trace_id=("trace_id",),
    span_id=("id", "run_id"),
    parent_id=("parent_run_id", "parent_run_ids"),
    start=("start_time",),
    kind=("run_type",),
    retriever=("retriever",),
    answer=("llm",),
    question=("inputs",),
    response=("outputs",),
    reference=("reference_outputs",),
    documents=("outputs.documents", "outputs.output", "outputs"),
)

MLFLOW = SpanForm(
    marks=(("spans", "request"), ("trace", "request"), ("info", "data")),
    held=("spans", "data.spans", "trace.data.spans"),
    trace_id=("trace_id", "info.trace_id", "request_id", "info.request_id"),
    span_id=("span_id", "context.span_id"),
    parent_id=("parent_span_id", "parent_id"),
    start=START,
    kind=("span_type", "attributes.mlflow.spanType"),
    retriever=("retriever",),
    reranker=("reranker",),
    answer=("llm", "chat_model"),
    question=("request", "data.request", "inputs", "attributes.mlflow.spanInputs"),
    response=("response", "data.response", "outputs", "attributes.mlflow.spanOutputs"),
    reference=(
        "assessments.expected_response.expectation.value",
        "info.assessments.expected_response.expectation.value",
    ),
    documents=("outputs", "attributes.mlflow.spanOutputs"),
)

PRESETS: Mapping[str, tuple[Form, ...]] = {
    "ragas": (RAGAS,),
    "deepeval": (DEEPEVAL,),
    "evidently": (EVIDENTLY,),
    "langchain": (LANGCHAIN,),
    "llamaindex": (LLAMAINDEX,),
    "haystack": (HAYSTACK, HAYSTACK_DICT),
    "langfuse": (LANGFUSE,),
    "phoenix": (PHOENIX_SPANS, PHOENIX_DOCUMENTS, PHOENIX_JOINED),
    "openinference": (OPENINFERENCE,),
    "otel-genai": (OTEL_GENAI,),
    "langsmith": (LANGSMITH,),
    "mlflow": (MLFLOW,),
}


def fits(form: Form, rows: Iterable[Mapping[str, object]]) -> bool:
    """Return whether rows, or spans, have the marks of a form."""
    if isinstance(form, RowForm):
        names = {name for row in rows for name in row}
        return any(names.issuperset(group) for group in form.marks)
    return any(
        any(_has_all(row, group) for group in form.marks) and not any(_has_all(row, [path]) for path in form.without)
        for row in rows
    )


def _has_all(row: Mapping[str, object], paths: Iterable[str]) -> bool:
    return all(lookup(row, path) is not ABSENT for path in paths)
