"""The real model on each backend, against sentence-transformers one text at a time."""

import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rag_descriptors import Cache, ContextRelevance, SentenceTransformerEmbedder
from rag_descriptors.errors import MissingExtraError, ModelError
from rag_descriptors.jobs import batch
from rag_descriptors.jobs.batch import score_traces
from rag_descriptors.models import encoder
from rag_descriptors.models.encoder import load_encoder, n_cores
from rag_descriptors.models.find import find_model, while_unchanged
from rag_descriptors.traces import formats
from rag_descriptors.traces.readers import open_traces

SAMPLE = Path(__file__).parents[1] / "data" / "traces_mtrag.jsonl"
BACKENDS = ["torch", "openvino", "onnx"]

pytestmark = [
    pytest.mark.model,
    # torch's own exporter, and what openvino imports, use what torch and Python deprecate
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def forget():
    """Let models be loaded anew."""
    encoder._load = while_unchanged(encoder._load.__wrapped__)


@pytest.fixture(scope="module", autouse=True)
def user_cache(tmp_path_factory):
    """Exported models go into a folder of this module."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        forget()
        yield folder
    forget()


@pytest.fixture(scope="module")
def folder():
    return find_model("all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def texts():
    """Thirty real passages, with very short and over-long ones among them."""
    rows = [json.loads(line) for line in SAMPLE.read_text("utf-8").splitlines()]
    passages = list(dict.fromkeys(text for row in rows for text in row["contexts"]))
    return ["a", ".", "Ja?", "東京は日本の首都です。", " ".join(passages[:5]), "very " * 600, *passages[:24]]


@pytest.fixture(scope="module")
def expected(folder, texts):
    """What sentence-transformers says of each text alone, in float32."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    return np.array([model.encode(text) for text in texts])


def embedder(backend, **options):
    pytest.importorskip({"onnx": "onnxruntime"}.get(backend, backend))
    return SentenceTransformerEmbedder(backend=backend, **options)


def vectors(backend, texts, **options):
    return embedder(backend, **options).embed(texts, "document").vectors


# --- the vectors


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batch_size", [None, 7])
def test_each_backend_agrees_with_sentence_transformers(texts, expected, backend, batch_size):
    found = vectors(backend, texts, batch_size=batch_size)
    assert (found.shape, found.dtype) == ((30, 384), np.float32)
    assert np.abs(found - expected).max() < 1e-4


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vector_does_not_hang_on_the_texts_beside_it(texts, backend):
    together = vectors(backend, texts)
    order = np.random.default_rng(0).permutation(len(texts))
    assert np.array_equal(vectors(backend, [texts[place] for place in order]), together[order])
    assert np.array_equal(vectors(backend, texts[3:11]), together[3:11])
    for place in (0, 4, 5, 17):
        assert np.array_equal(vectors(backend, [texts[place]])[0], together[place])


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_may_share_a_model(texts, backend):
    together = vectors(backend, texts)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda start: vectors(backend, texts[start : start + 10]), [0, 10, 20]))
    assert np.array_equal(np.concatenate(found), together)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_texts_give_no_vectors(backend):
    read = embedder(backend).embed([], "document")
    assert (read.vectors.shape, read.unread.shape) == ((0, 384), (0,))


@pytest.mark.parametrize("backend", ["torch", "openvino"])
@pytest.mark.filterwarnings("ignore:this processor has no bfloat16 units")
def test_bfloat16_is_close(texts, expected, backend):
    found = vectors(backend, texts, dtype="bfloat16")
    cosines = np.einsum("ij,ij->i", found, expected) / np.linalg.norm(found, axis=1)
    assert cosines.min() > 0.999


def test_a_device_may_be_given(texts, folder, expected):
    assert load_encoder(folder, "torch", "float32", "cpu", None).model.device.type == "cpu"
    found = vectors("torch", texts[:3], device="cpu")
    assert np.abs(found - expected[:3]).max() < 1e-4


def test_elsewhere_than_on_a_cpu_texts_go_in_batches_from_one_thread(folder):
    """The device `meta` computes nothing, but is no CPU."""
    pytest.importorskip("torch")
    loaded = load_encoder(folder, "torch", "float32", "meta", None)
    assert (loaded.batch_size, loaded.n_workers) == (encoder.BATCH_ON_DEVICE, 1)
    assert load_encoder(folder, "torch", "float32", "meta", 3).batch_size == 3


def test_one_thread_computes_the_same(folder, texts):
    loaded = load_encoder(folder, "torch", "float32", "cpu", None)
    forward = encoder.BACKENDS["torch"](loaded.model, folder, "float32", 1)
    alone = encoder.Encoder(loaded.model, forward, batch_size=1, n_workers=1)
    assert np.abs(alone(texts, "") - loaded(texts, "")).max() < 1e-5


def test_features_that_are_no_tensors_go_as_they_are():
    torch = pytest.importorskip("torch")
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert encoder._unpadded("text", mask, [0], 2) == "text"
    assert encoder._unpadded(torch.tensor([[1, 2, 0], [3, 4, 5]]), mask, [0], 2).tolist() == [[1, 2]]


def test_a_prompt_stands_before_each_text(folder, texts):
    loaded = load_encoder(folder, "torch", "float32", None, None)
    assert np.array_equal(loaded(texts[:3], "query: "), loaded([f"query: {text}" for text in texts[:3]], ""))


# --- the scores


@pytest.mark.filterwarnings("ignore::rag_descriptors.errors.TruncationWarning")
@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_do_not_hang_on_batches_or_cache(tmp_path, monkeypatch, backend):
    rows = [json.loads(line) for line in SAMPLE.read_text("utf-8").splitlines()]
    descriptor = ContextRelevance(
        "question",
        "contexts",
        method_params={"embedder": embedder(backend)},
        aggregation_method="hit",
        aggregation_method_params={"threshold": 0.7},
        output_scores=True,
        alias="cr",
    )
    sizes = []
    original = batch.select
    monkeypatch.setattr(batch, "select", lambda part, *more: sizes.append(part.num_rows) or original(part, *more))

    def scored(rows_at_once, order, cache):
        monkeypatch.setattr(formats, "ROWS_AT_ONCE", rows_at_once)
        monkeypatch.setattr(batch, "GATHERED_ROWS", rows_at_once)
        source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        source.write_text("\n".join(json.dumps({**rows[place], "place": place}) for place in order))
        sizes.clear()
        score_traces(open_traces([str(source)]), output, [descriptor], cache=cache)
        assert max(sizes) == min(rows_at_once, len(rows))
        lines = map(json.loads, output.read_text("utf-8").splitlines())
        return {line["place"]: (line["cr"], line["cr scores"]) for line in lines}

    places = list(range(len(rows)))
    shuffled = random.Random(0).sample(places, len(places))
    with closing(Cache(tmp_path / "c.sqlite")) as full:
        first = scored(8192, places, full)
        assert any(hit for hit, _ in first.values())
        for rows_at_once, order, cache in (
            (7, shuffled, full),
            (1, places, full),
            (7, shuffled, None),
            (1, places, None),
        ):
            assert scored(rows_at_once, order, cache) == first


# --- what goes wrong


def test_bfloat16_without_units_warns(folder, monkeypatch):
    torch = pytest.importorskip("torch")
    for probe in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, probe, lambda: False, raising=False)
    forget()
    with pytest.warns(UserWarning, match="no bfloat16 units: bfloat16 will not be faster here"):
        load_encoder(folder, "torch", "bfloat16", "cpu", None)


@pytest.mark.parametrize("probe", ["_is_amx_tile_supported", "_is_avx512_bf16_supported"])
def test_bfloat16_with_units_does_not_warn(folder, monkeypatch, probe):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cpu, probe, lambda: True, raising=False)
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load_encoder(folder, "torch", "bfloat16", "cpu", None)


@pytest.mark.filterwarnings("ignore:this processor has no bfloat16 units")
def test_onnx_has_no_bfloat16():
    with pytest.raises(
        ModelError, match=r"the onnx backend computes in float32, not bfloat16\. Use backend='openvino'"
    ):
        vectors("onnx", ["a"], dtype="bfloat16")


@pytest.mark.parametrize(
    ("backend", "module", "extra"),
    [
        ("torch", "sentence_transformers", "semantic"),
        ("onnx", "onnxruntime", "onnx"),
        ("onnx", "onnx", "onnx"),
        ("openvino", "openvino", "openvino"),
        ("openvino", "onnx", "openvino"),
    ],
)
def test_a_missing_package_names_its_extra(monkeypatch, backend, module, extra):
    loaded = embedder(backend)
    forget()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingExtraError, match=rf"{module} is not installed\. pip install 'rag-descriptors\[{extra}\]'"
    ):
        loaded.embed(["a"], "document")
    forget()


def test_a_folder_without_a_model_is_one_clear_error(tmp_path):
    with pytest.raises(ModelError, match=f"the model in {tmp_path} does not load: "):
        load_encoder(tmp_path, "torch", "float32", None, None)


def test_an_unknown_device_is_one_clear_error(folder):
    with pytest.raises(ModelError, match=r"does not load: .*nonsense"):
        load_encoder(folder, "torch", "float32", "nonsense", None)


def test_a_trace_says_nothing(folder, capsys, caplog):
    forget()
    load_encoder(folder, "torch", "float32", "cpu", None)
    assert capsys.readouterr() == ("", "")
    assert caplog.text == ""


@pytest.mark.parametrize("fault", ["raises", "another", "too long", "prompt"])
def test_a_model_that_can_t_be_traced_is_computed_step_by_step(folder, texts, monkeypatch, fault):
    torch = pytest.importorskip("torch")
    model = load_encoder(folder, "torch", "float32", "cpu", None).model
    expected = load_encoder(folder, "torch", "float32", "cpu", None)(texts[:6], "")

    def step_by_step(features):
        return model(features)["sentence_embedding"]

    assert encoder._traced(model, step_by_step) is not None
    if fault == "raises":
        monkeypatch.setattr(torch.jit, "trace", lambda *_, **__: 1 / 0)
    if fault == "another":
        monkeypatch.setattr(torch.jit, "trace", lambda *_, **__: lambda ids: torch.zeros(len(ids), 384))
    if fault == "too long":
        monkeypatch.setattr(encoder, "MOST_TRACED", 255)
    if fault == "prompt":
        monkeypatch.setattr(model[1], "include_prompt", False)
    assert encoder._traced(model, step_by_step) is None
    forget()
    assert np.abs(load_encoder(folder, "torch", "float32", "cpu", None)(texts[:6], "") - expected).max() < 1e-6
    forget()


def test_a_static_model_is_one_clear_error(folder):
    class Static:
        def __getitem__(self, _):
            return self

        def preprocess(self, texts, prompt):
            return {"input_ids": [1], "offsets": [0]}

    with pytest.raises(ModelError, match="Static models, such as static ones, are not read"):
        encoder.Encoder(Static(), None, 1, 1)(["a"], "")


def test_a_model_saved_again_is_another_one(folder, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "model"
    shutil.copytree(folder, path)
    saved = SentenceTransformerEmbedder(model=str(path))
    before, known = saved.embed(["a text"], "document").vectors, saved.identity("document")
    loaded = load_encoder(path, "torch", "float32", None, None).model
    with torch.no_grad():
        loaded[0].auto_model.encoder.layer[0].output.dense.weight.mul_(2)
    loaded.save(str(path))
    assert saved.identity("document")["weights"] != known["weights"]
    assert np.abs(saved.embed(["a text"], "document").vectors - before).max() > 1e-3


def test_threads_that_begin_later_have_all_cores(folder):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        encoder.Encoder(*load_encoder_parts(folder))(["a", "b c", "d e f"], "")
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


def load_encoder_parts(folder):
    loaded = load_encoder(folder, "torch", "float32", "cpu", None)
    return loaded.model, loaded.forward, 1, 2


# --- the exported file


def test_an_export_of_several_files_is_refused(folder, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")

    def split(module, inputs, path, **_):
        Path(path).write_bytes(b"")
        Path(path).with_suffix(".weight").write_bytes(b"")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.onnx, "export", split)
    forget()
    with pytest.raises(ModelError, match=r"too large for one ONNX file\. Use backend='torch'"):
        vectors("onnx", ["a"])
    assert list((tmp_path / "rag-descriptors" / "onnx").iterdir()) == []


def test_an_exported_file_that_is_damaged_is_one_clear_error(user_cache, texts):
    vectors("onnx", texts[:1])
    (exported,) = (user_cache / "rag-descriptors" / "onnx").iterdir()
    exported.write_bytes(b"no model")
    forget()
    with pytest.raises(ModelError, match=r"does not load on onnx: .* Use backend='torch'"):
        vectors("onnx", texts[:1])
    exported.unlink()
    forget()
    vectors("onnx", texts[:1])


def test_a_prompt_that_is_left_out_of_vectors(folder, monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    model = load_encoder(folder, "torch", "float32", "cpu", None).model
    monkeypatch.setattr(model[1], "include_prompt", False)
    with pytest.raises(ModelError, match="leaves its prompt out"):
        encoder._export(model, tmp_path / "x.onnx")


def test_the_export_is_made_once_and_whole(user_cache, texts):
    vectors("onnx", texts[:1])
    (exported,) = (user_cache / "rag-descriptors" / "onnx").iterdir()  # nothing temporary stays
    made = exported.stat().st_mtime_ns
    forget()
    vectors("onnx", texts[:1])
    vectors("openvino", texts[:1])
    assert exported.stat().st_mtime_ns == made
    assert exported.parent.stat().st_mode & 0o777 == 0o700 or os.name != "posix"


def test_an_export_that_fails_leaves_nothing(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")

    def half(module, inputs, path, **_):
        Path(path).write_bytes(b"half a model")
        raise RuntimeError("out of memory")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.onnx, "export", half)
    forget()
    with pytest.raises(ModelError, match=r"can't be exported to ONNX: out of memory\. Use backend='torch'"):
        vectors("onnx", ["a"])
    assert list((tmp_path / "rag-descriptors" / "onnx").iterdir()) == []


# --- no connection


FIRST_USE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from rag_descriptors import SentenceTransformerEmbedder
from rag_descriptors.models import encoder
sys.setswitchinterval(1e-6)
loads, load = [], encoder._load_model
encoder._load_model = lambda *given: loads.append(given) or load(*given)
embedder = SentenceTransformerEmbedder(backend=sys.argv[1])
with ThreadPoolExecutor(8) as pool:
    read = list(pool.map(lambda text: embedder.embed([text, "b"], "document").vectors.shape, "acdefghi"))
print(set(read), len(loads))
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_may_be_the_first_to_use_a_model(user_cache, backend):
    embedder(backend)
    command = [sys.executable, "-c", FIRST_USE, backend]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.stdout == "{(2, 384)} 1\n", done.stderr


CONNECTIONS = """
import sys
made = []


def hook(event, data):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        made.append((event, data))


sys.addaudithook(hook)
from rag_descriptors import SentenceTransformerEmbedder
SentenceTransformerEmbedder(backend=sys.argv[1]).embed(["a"], "document")
import time; time.sleep(1)
print(made, "openvino" in sys.modules)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_connection_is_made(user_cache, backend):
    embedder(backend)
    command = [sys.executable, "-c", CONNECTIONS, backend]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.stdout == f"[] {backend == 'openvino'}\n", done.stderr


@pytest.mark.parametrize(("told", "expected"), [("3", 3), ("0", 1), ("", None), ("all", None)])
def test_how_many_cores_compute_can_be_told(monkeypatch, told, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    own = n_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert n_cores() == (expected or own) >= 1
