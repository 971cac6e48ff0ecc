"""The computing behind an embedder: a model loaded on one of the backends, fed without padding.

Texts of exactly equal token length are computed together, so nothing is padded; on a CPU every core works on texts of
its own. With one text at a time, the default there, a vector can't depend on what stands beside its text.
"""

import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from rag_descriptors.errors import DescriptorError, ModelError
from rag_descriptors.models.find import import_extra, model_digest, while_unchanged

__all__ = ["Encoder", "load_encoder", "n_cores"]

Vectors = npt.NDArray[np.float32]
Features = dict[str, Any]
Forward = Callable[[Features], Vectors]
BATCH_ON_DEVICE = 64
EXPORT_VERSION = 1
MOST_TRACED = 512  # tokens; models that read more may treat long texts in another way
LOADING = Lock()


@dataclass(frozen=True)
class Encoder:
    """Texts in, the model's own vectors out.

    Attributes:
        model: The sentence-transformers model, which tokenises.
        forward: Computes texts of equal token length; may be called from several threads.
        batch_size: The most texts computed at once.
        n_workers: How many threads compute.
    """

    model: Any
    forward: Forward
    batch_size: int
    n_workers: int

    def __call__(self, texts: Sequence[str], prompt: str) -> Vectors:
        """Return one vector per text, shape (n_texts, n_dimensions); texts are cut at the model's limit."""
        if not texts:
            return np.empty((0, self.model.get_embedding_dimension()), np.float32)
        features = self.model.preprocess(list(texts), prompt=prompt or None)
        if "attention_mask" not in features:
            raise ModelError(f"{type(self.model[0]).__name__} models, such as static ones, are not read. Use another.")
        mask = features["attention_mask"].bool()
        lengths = mask.sum(1).tolist()
        groups = list(_equal_lengths(lengths, self.batch_size))

        def encode(rows: list[int]) -> Vectors:
            return self.forward(
                {name: _unpadded(value, mask, rows, lengths[rows[0]]) for name, value in features.items()}
            )

        with _threads_kept(), ThreadPoolExecutor(self.n_workers) as pool:
            vectors = np.concatenate(list(pool.map(encode, groups)))
        return vectors[np.argsort(np.concatenate(groups))]


@contextmanager
def _threads_kept() -> Iterator[None]:
    """Let threads that begin later have as many cores as before: torch keeps no number of them for each thread."""
    torch = import_extra("torch", "semantic")
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_encoder(folder: Path, backend: str, dtype: str, device: str | None, batch_size: int | None) -> Encoder:
    """Return a model on a backend; it is loaded once per process, by one thread at a time.

    Raises:
        MissingExtraError: A package of the backend is not installed.
        ModelError: The model does not load, or not on this backend.
    """
    with LOADING:
        return _load(folder, backend, dtype, device, batch_size)


@while_unchanged
def _load(folder: Path, backend: str, dtype: str, device: str | None, batch_size: int | None) -> Encoder:
    model = _load_model(folder, device if backend == "torch" else "cpu", dtype if backend == "torch" else "float32")
    on_cpu = model.device.type == "cpu"
    if on_cpu and dtype == "bfloat16" and not _has_bfloat16():
        warnings.warn("this processor has no bfloat16 units: bfloat16 will not be faster here", stacklevel=5)
    n_workers = n_cores() if on_cpu else 1
    try:
        forward = BACKENDS[backend](model, folder, dtype, n_workers)
    except DescriptorError:
        raise
    except Exception as error:
        raise ModelError(f"the model in {folder} does not load on {backend}: {error}. Use backend='torch'.") from error
    return Encoder(model, forward, batch_size or (1 if on_cpu else BATCH_ON_DEVICE), n_workers)


def _load_model(folder: Path, device: str | None, dtype: str) -> Any:
    sentence_transformers = import_extra("sentence_transformers", "semantic")
    import_extra("transformers.utils.logging", "semantic").disable_progress_bar()
    try:
        model = sentence_transformers.SentenceTransformer(
            str(folder), device=device, local_files_only=True, model_kwargs={"dtype": dtype}
        )
        return model.eval()
    except Exception as error:
        raise ModelError(f"the model in {folder} does not load: {error}") from error


def _torch_forward(model: Any, _folder: Path, _dtype: str, n_workers: int) -> Forward:
    torch = import_extra("torch", "semantic")

    def step_by_step(features: Features) -> Any:
        moved = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in features.items()}
        return model(moved)["sentence_embedding"]

    compute = (_traced(model, step_by_step) if model.device.type == "cpu" else None) or step_by_step

    def forward(features: Features) -> Vectors:
        if n_workers > 1:
            torch.set_num_threads(1)  # for this worker; see _threads_kept
        with torch.inference_mode():
            vectors: Vectors = compute(features).float().cpu().numpy()
            return vectors

    return forward


def _traced(model: Any, step_by_step: Callable[[Features], Any]) -> Callable[[Features], Any] | None:
    """Return the model without Python between its steps, for which the workers of a CPU would wait for each other.

    None where that is not the same model: a trace follows one path, which texts of another length might leave. So
    texts of several lengths, up to the longest that the model reads, must come to the same vectors.
    """
    torch = import_extra("torch", "semantic")
    limit = model.max_seq_length
    if not limit or limit > MOST_TRACED or not _reads_ids_alone(model):
        return None
    try:
        with torch.inference_mode(), _unheard():
            trace = torch.jit.trace(_ids_only(model), (_sample(),), check_trace=False)
            tried = [model.preprocess([text]) for text in ("a", "a few words more", "words " * limit)]
            is_same = all(
                torch.allclose(trace(features["input_ids"]), step_by_step(features), atol=1e-6) for features in tried
            )
    except Exception:  # noqa: BLE001 - a model of any kind, whose code may do what a trace can't follow
        return None
    return (lambda features: trace(features["input_ids"])) if is_same else None


def _onnx_forward(model: Any, folder: Path, dtype: str, _n_workers: int) -> Forward:
    if dtype != "float32":
        raise ModelError(f"dtype: the onnx backend computes in float32, not {dtype}. Use backend='openvino' for that.")
    onnxruntime = import_extra("onnxruntime", "onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(_exported(model, folder, "onnx"), options, ["CPUExecutionProvider"])

    def forward(features: Features) -> Vectors:
        vectors: Vectors = session.run(None, {"input_ids": features["input_ids"].numpy()})[0]
        return vectors

    return forward


def _openvino_forward(model: Any, folder: Path, dtype: str, n_workers: int) -> Forward:
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # else the import alone reports home
    openvino = import_extra("openvino", "openvino")
    settings = {
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[dtype],
        "NUM_STREAMS": str(n_workers),
        "INFERENCE_NUM_THREADS": n_workers,
    }
    compiled = openvino.Core().compile_model(_exported(model, folder, "openvino"), "CPU", settings)

    def forward(features: Features) -> Vectors:
        request = compiled.create_infer_request()
        request.infer({0: features["input_ids"].numpy()})
        return np.array(request.get_output_tensor(0).data, np.float32)

    forward(model.preprocess(["first"]))  # OpenVINO deadlocks where two threads use it for the first time
    return forward


BACKENDS: Mapping[str, Callable[[Any, Path, str, int], Forward]] = {
    "torch": _torch_forward,
    "openvino": _openvino_forward,
    "onnx": _onnx_forward,
}


def _exported(model: Any, folder: Path, extra: str) -> str:
    """Return the ONNX file of a model, which takes token ids without padding; it is made once per user."""
    torch = import_extra("torch", "semantic")
    import_extra("onnx", extra)
    name = f"{model_digest(folder)[:32]}-{EXPORT_VERSION}-torch{torch.__version__.partition('+')[0]}.onnx"
    path = platformdirs.user_cache_path("rag-descriptors") / "onnx" / name
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as temporary:
            _export(model, Path(temporary) / name)
            if len([*Path(temporary).iterdir()]) > 1:
                raise ModelError("the model is too large for one ONNX file. Use backend='torch'.")
            (Path(temporary) / name).replace(path)
    return str(path)


def _export(model: Any, path: Path) -> None:
    torch = import_extra("torch", "semantic")
    if not _reads_ids_alone(model):
        raise ModelError("the model leaves its prompt out of its vectors, which ONNX can't. Use backend='torch'.")
    try:
        with torch.no_grad(), _unheard():
            torch.onnx.export(
                _ids_only(model),
                (_sample(),),
                str(path),
                input_names=["input_ids"],
                output_names=["vectors"],
                dynamic_axes={"input_ids": {0: "texts", 1: "length"}, "vectors": {0: "texts"}},
                dynamo=False,
                opset_version=17,
            )
    except Exception as error:
        raise ModelError(f"the model can't be exported to ONNX: {error}. Use backend='torch'.") from error


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep to itself what torch and transformers say of a model that is followed step by step."""
    logging = import_extra("transformers.utils.logging", "semantic")
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


def _reads_ids_alone(model: Any) -> bool:
    """Return whether token ids are all that a vector is made of; a prompt that is left out has to be told apart."""
    return all(getattr(step, "include_prompt", True) for step in model.children())


def _sample() -> Any:
    """Return token ids of two texts of equal length."""
    return import_extra("torch", "semantic").arange(1, 19).reshape(2, 9)


def _ids_only(model: Any) -> Any:
    """Return a module from token ids, all of them real, to vectors."""
    torch = import_extra("torch", "semantic")

    class IdsOnly(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.steps = torch.nn.ModuleList(model.children())

        def forward(self, input_ids: Any) -> Any:
            features = self.steps[0]({"input_ids": input_ids})
            features["attention_mask"] = torch.ones_like(input_ids)
            for step in self.steps[1:]:
                features = step(features)
            return features["sentence_embedding"]

    return IdsOnly()


def _equal_lengths(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield the places of texts of equal length, at most `batch_size` at once, the longest first."""
    places = defaultdict(list)
    for place, length in enumerate(lengths):
        places[length].append(place)
    for length in sorted(places, reverse=True):
        same = places[length]
        yield from (same[start : start + batch_size] for start in range(0, len(same), batch_size))


def _unpadded(value: Any, mask: Any, rows: list[int], length: int) -> Any:
    """Return the rows of a padded feature without their padding; what is no tensor of this shape goes as it is."""
    if getattr(value, "shape", None) != mask.shape:
        return value
    return value[rows][mask[rows]].reshape(len(rows), length)


def _has_bfloat16() -> bool:
    cpu = import_extra("torch", "semantic").cpu
    return any(getattr(cpu, probe, bool)() for probe in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))


def n_cores() -> int:
    """Return how many cores this process is to use: those it may run on, or fewer where the user or a job says so."""
    if os.environ.get("OMP_NUM_THREADS", "").isdecimal():
        return max(int(os.environ["OMP_NUM_THREADS"]), 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
