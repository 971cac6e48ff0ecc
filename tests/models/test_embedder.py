import json
import shutil
from functools import cache
from itertools import islice, pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_descriptors import ContextRelevance, SentenceTransformerEmbedder, score_frame
from rag_descriptors.errors import ModelError, OptionError, TruncationWarning
from rag_descriptors.models.embedder import _cut, load_tokenizer
from rag_descriptors.models.find import find_model, model_digest

ROWS = 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "tensorflow"}, "backend: 'tensorflow' is unknown. Allowed: 'torch'"),
        ({"dtype": "float16"}, "dtype: 'float16' is unknown"),
        ({"model": " "}, "model: ' ' is not allowed. Give a folder or a name such as 'all-MiniLM-L6-v2'."),
        ({"model": None}, "model: None is not allowed"),
        ({"backend": "onnx", "device": "cuda"}, "device: 'cuda' is for torch; onnx computes on the CPU"),
        ({"batch_size": 0}, "batch_size: 0 is not allowed. Give a whole number from 1."),
        ({"batch_size": True}, "batch_size: True is not allowed"),
        ({"batch_size": 1.0}, "batch_size: 1.0 is not allowed"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(OptionError) as caught:
        SentenceTransformerEmbedder(**options)
    assert message in str(caught.value)


def test_all_wrong_options_at_once():
    with pytest.raises(OptionError, match=r"(?s)backend.*dtype.*model.*batch_size"):
        SentenceTransformerEmbedder(backend=1, dtype=1, model=1, batch_size="1")


@given(st.lists(st.integers(1, 9) | st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 12))
def test_windows_cover_every_word_and_overlap(lengths, room):
    """Tokens are single letters here, each of them another, so a word may be longer than a window."""
    letters = map(chr, range(0x4E00, 0x9FFF))
    text = " ".join("".join(islice(letters, length)) for length in lengths)
    spans = [(place, place + 1) for place, letter in enumerate(text) if letter != " "]
    windows = [window.replace(" ", "") for window in _cut(text, spans, room)]
    assert all(0 < len(window) <= room for window in windows)
    assert set("".join(windows)) == set(text) - {" "}
    assert [window[0] for window in windows] == sorted({window[0] for window in windows})
    assert all(right[0] <= chr(ord(left[-1]) + 1) for left, right in pairwise(windows))
    assert len(windows) <= 2 + 2 * len(spans) / (room - room // 4)


def test_windows_end_at_words_and_share_a_quarter():
    text = " ".join(f"w{n:02}" for n in range(20))
    spans = [(4 * n, 4 * n + 3) for n in range(20)]
    windows = [window.split() for window in _cut(text, spans, 8)]
    assert [(window[0], window[-1]) for window in windows] == [("w00", "w07"), ("w06", "w13"), ("w12", "w19")]
    assert _cut(text, spans, 20) == [text]


@pytest.fixture(scope="module")
def embedder():
    return SentenceTransformerEmbedder()


@pytest.fixture(scope="module")
def reference():
    import torch  # noqa: PLC0415
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # single texts on a busy machine: threads that wait for each other cost minutes
    yield SentenceTransformer(str(find_model("all-MiniLM-L6-v2")), device="cpu", local_files_only=True)
    torch.set_num_threads(n_threads)


@pytest.fixture
def traces(data):
    path = data("traces_nq.jsonl")
    path = path if path.exists() else data("traces_mtrag.jsonl")
    return pd.read_json(path, lines=True)[:ROWS]


def one_at_a_time(reference):
    @cache
    def unit(text):
        vector = reference.encode([text], batch_size=1, show_progress_bar=False)[0]
        return vector / np.linalg.norm(vector)

    return lambda question, context: (1 + float(unit(question) @ unit(context))) / 2


@pytest.mark.model
@pytest.mark.filterwarnings("ignore::rag_descriptors.errors.TruncationWarning")
def test_parity_with_texts_encoded_one_at_a_time(reference, traces):
    options = {"output_scores": True, "method_params": {"device": "cpu"}}
    aggregations = {
        "mean": (None, lambda scores: sum(scores) / len(scores)),
        "max": (None, max),
        "min": (None, min),
        "hit": ({"threshold": 0.7}, lambda scores: int(max(scores) >= 0.7)),
        "hit_share": ({"threshold": 0.7}, lambda scores: sum(score >= 0.7 for score in scores) / len(scores)),
    }
    descriptors = [
        ContextRelevance(
            "question",
            "contexts",
            alias=name,
            aggregation_method=name,
            aggregation_method_params=params,
            **options,
        )
        for name, (params, _) in aggregations.items()
    ]
    scored, score = score_frame(traces, descriptors).frame, one_at_a_time(reference)
    for row in scored.itertuples():
        expected = [score(row.question, context) for context in row.contexts]
        scores = scored.loc[row.Index, "mean scores"]
        assert scores == pytest.approx(expected, abs=1e-4)
        for name, (_, function) in aggregations.items():
            found = scored.loc[row.Index, name]
            assert found == pytest.approx(function(scores), abs=1e-12) if scores else pd.isna(found)


@pytest.mark.model
@pytest.mark.filterwarnings("ignore::rag_descriptors.errors.TruncationWarning")
def test_batch_size_moves_no_score(traces):
    def scores(batch_size):
        params = {"batch_size": batch_size, "device": "cpu"}
        descriptor = ContextRelevance("question", "contexts", method_params=params, output_scores=True, alias="cr")
        return score_frame(traces[:5], descriptor).frame["cr scores"].tolist()

    for one, many in zip(scores(1), scores(64), strict=True):
        assert one == pytest.approx(many, abs=2e-6)


@pytest.mark.model
def test_vectors(embedder):
    read = embedder.embed(["Who wrote Faust?", "Goethe wrote Faust.", "Bread."], "query")
    assert (read.vectors.shape, read.vectors.dtype) == ((3, 384), np.float32)
    assert read.unread.tolist() == [0, 0, 0]
    assert np.linalg.norm(read.vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    assert read.vectors[0] @ read.vectors[1] > read.vectors[0] @ read.vectors[2] + 0.4


@pytest.mark.model
@pytest.mark.filterwarnings("ignore:this processor has no bfloat16 units")
def test_half_precision_is_close(embedder):
    texts = ["Who wrote Faust?", "Goethe wrote Faust."]
    full = embedder.embed(texts, "query").vectors
    half = SentenceTransformerEmbedder(dtype="bfloat16").embed(texts, "query").vectors
    assert half.dtype == np.float32
    assert half == pytest.approx(full, abs=0.02)
    assert not np.array_equal(half, full)


@pytest.mark.model
def test_identity(embedder):
    identity = embedder.identity("query")
    assert identity == {
        "model": "all-MiniLM-L6-v2",
        "revision": None,
        "weights": model_digest(find_model("all-MiniLM-L6-v2")),
        "prompt": "",
        "backend": "torch",
        "dtype": "float32",
    }
    assert identity == SentenceTransformerEmbedder(batch_size=1, device="cpu").identity("document")
    assert json.loads(json.dumps(identity)) == identity


@pytest.mark.model
@pytest.mark.parametrize(("n_words", "unread"), [(254, 0), (255, 1), (300, 46)])
def test_the_count_of_unread_tokens(embedder, n_words, unread):
    """The model reads 256 tokens, of which two are its own."""
    text = " ".join(["house"] * n_words)
    read = embedder.embed([text, text + " cat"], "document")
    assert read.unread.tolist() == [unread, unread + 1]


@pytest.mark.model
def test_a_text_too_long_is_reported(embedder):
    traces = pd.DataFrame({"question": ["cat"], "contexts": [["house " * 300 + "cat", "cat"]]})
    descriptor = ContextRelevance("question", "contexts", alias="cr", output_reasons=True, output_scores=True)
    with pytest.warns(TruncationWarning, match="1 of 2 distinct texts"):
        scored = score_frame(traces, descriptor).frame
    assert scored["cr reasons"].tolist() == [["the last 47 tokens of the context were not read", None]]
    windows = ContextRelevance("question", "contexts", alias="cr", method_params={"long_context": "window_max"})
    assert score_frame(traces, windows).frame["cr"][0] > scored["cr"][0]


HARD = ["house", "don't", "東京都", "naïve", "e\u0301te\u0301", "😀", "x" * 120, "…", "a\0b", "1,234.5", "0:" * 300]
LETTERS = st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"])


@pytest.mark.model
@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(HARD) | st.text(LETTERS, min_size=1, max_size=8), min_size=1, max_size=6))
def test_windows_are_read_whole(words):
    embedder = SentenceTransformerEmbedder()
    text = " ".join(words * 100)
    [windows] = embedder.windows([text], "document")
    assert embedder._unread(windows, "document").tolist() == [0] * len(windows)
    tokenizer = load_tokenizer(embedder._folder)
    known = [word for word in words if len(word) < 200 and tokenizer.encode(word, add_special_tokens=False).ids]
    assert [word for word in known if not any(word in window for window in windows)] == []


@pytest.mark.model
def test_consecutive_windows_overlap(embedder):
    text = " ".join(f"house{n}" for n in range(400))
    [windows] = embedder.windows([text], "document")
    assert len(windows) > 2
    for left, right in pairwise(windows):
        shared = set(left.split()) & set(right.split())
        assert len(shared) >= 20
    assert embedder.windows(["short", ""], "document") == [["short"], [""]]


@pytest.fixture
def copied(tmp_path):
    """Copy the model's folder, with some of its files replaced."""

    def copy(**settings):
        folder = tmp_path / "model"
        shutil.copytree(find_model("all-MiniLM-L6-v2"), folder)
        for name, content in settings.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        return folder

    return copy


@pytest.mark.model
@pytest.mark.parametrize("name", ["document", "passage"])
def test_prompts_stand_before_texts(copied, embedder, name):
    folder = copied(config_sentence_transformers={"prompts": {"query": "asked: ", name: "written by people: "}})
    prompted = SentenceTransformerEmbedder(model=str(folder))
    for role, prompt in (("query", "asked: "), ("document", "written by people: ")):
        assert prompted.identity(role)["prompt"] == prompt
        found = prompted.embed(["cat"], role).vectors
        assert found == pytest.approx(embedder.embed([prompt + "cat"], role).vectors, abs=1e-5)
        assert found != pytest.approx(embedder.embed(["cat"], role).vectors, abs=1e-2)
    text = " ".join(["house"] * 254)
    assert prompted.embed([text], "document").unread.tolist() == [4]
    [windows] = prompted.windows([text], "document")
    assert prompted.embed(windows, "document").unread.tolist() == [0] * len(windows)


@pytest.mark.model
def test_a_model_without_a_limit(copied):
    folder = copied(sentence_bert_config={}, tokenizer_config={}, config={})
    unlimited = SentenceTransformerEmbedder(model=str(folder))
    text = "house " * 600
    assert unlimited.windows([text], "document") == [[text]]
    assert unlimited._unread([text], "document").tolist() == [0]


@pytest.mark.model
def test_a_model_that_does_not_load(copied):
    folder = copied(modules=[{"idx": 0, "name": "0", "path": "", "type": "no.such.Module"}])
    with pytest.raises(ModelError, match=r"the model in .* does not load: "):
        SentenceTransformerEmbedder(model=str(folder)).embed(["a"], "query")


@pytest.mark.model
def test_a_model_without_a_fast_tokenizer(copied):
    folder = copied()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer\.json\. Save it again"):
        SentenceTransformerEmbedder(model=str(folder)).windows(["a"], "document")
