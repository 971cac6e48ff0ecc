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
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from rag_descriptors.errors import ModelError
from rag_descriptors.models.find import import_extra, model_digest

__all__ = ["Encoder", "load_encoder", "n_cores"]

Vectors = npt.NDArray[np.float32]
Features = dict[str, Any]
Forward = Callable[[Features], Vectors]
BATCH_ON_DEVICE = 64
EXPORT_VERSION = 1
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
        mask = features["attention_mask"].bool()
        lengths = mask.sum(1).tolist()
        groups = list(_equal_lengths(lengths, self.batch_size))

        def encode(rows: list[int]) -> Vectors:
            return self.forward(
                {name: _unpadded(value, mask, rows, lengths[rows[0]]) for name, value in features.items()}
            )

        with ThreadPoolExecutor(self.n_workers) as pool:
            vectors = np.concatenate(list(pool.map(encode, groups)))
        return vectors[np.argsort(np.concatenate(groups))]


def load_encoder(folder: Path, backend: str, dtype: str, device: str | None, batch_size: int | None) -> Encoder:
    """Return a model on a backend; it is loaded once per process, by one thread at a time.

    Raises:
        MissingExtraError: A package of the backend is not installed.
        ModelError: The model does not load, or not on this backend.
    """
    with LOADING:
        return _load(folder, backend, dtype, device, batch_size)


@lru_cache
def _load(folder: Path, backend: str, dtype: str, device: str | None, batch_size: int | None) -> Encoder:
    model = _load_model(folder, device if backend == "torch" else "cpu", dtype if backend == "torch" else "float32")
    on_cpu = model.device.type == "cpu"
    if on_cpu and dtype == "bfloat16" and not _has_bfloat16():
        warnings.warn("this processor has no bfloat16 units: bfloat16 will not be faster here", stacklevel=5)
    n_workers = n_cores() if on_cpu else 1
    forward = BACKENDS[backend](model, folder, dtype, n_workers)
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

    def forward(features: Features) -> Vectors:
        if n_workers > 1:
            torch.set_num_threads(1)  # of the calling worker alone
        with torch.inference_mode():
            moved = {
                name: value.to(model.device) if torch.is_tensor(value) else value for name, value in features.items()
            }
            vectors: Vectors = model(moved)["sentence_embedding"].float().cpu().numpy()
            return vectors

    return forward


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
            (Path(temporary) / name).replace(path)
    return str(path)


def _export(model: Any, path: Path) -> None:
    torch = import_extra("torch", "semantic")
    sample = torch.arange(1, 19).reshape(2, 9)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _ids_only(model),
                (sample,),
                str(path),
                input_names=["input_ids"],
                output_names=["vectors"],
                dynamic_axes={"input_ids": {0: "texts", 1: "length"}, "vectors": {0: "texts"}},
                dynamo=False,
                opset_version=17,
            )
    except Exception as error:
        raise ModelError(f"the model can't be exported to ONNX: {error}. Use backend='torch'.") from error


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
