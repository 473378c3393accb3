"""Find and read the tokenizer of a model: a Hugging Face `tokenizer.json`, or the vocabulary inside a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import tokenizers

from ramet.errors import TokenizerError
from ramet.tokenizer.gguf_header import GgufHeader, read_gguf_header
from ramet.tokenizer.gguf_vocab import tokenizer_from_gguf
from ramet.tokenizer.tokenizer import Tokenizer

_SPECIAL_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_SPECIAL_LISTS: Final = ("additional_special_tokens", "extra_special_tokens")


class TokenizerFiles(Protocol):
    """Where a model's tokenizer lies; `gguf` is the header of the model's GGUF file if someone has read it already."""

    @property
    def tokenizer_path(self) -> Path:
        """A folder with `tokenizer.json`, that file itself, or a GGUF file."""

    @property
    def gguf(self) -> GgufHeader | None:
        """The header of the model's GGUF file."""


def load_tokenizer(source: TokenizerFiles | Path | str) -> Tokenizer:
    """The tokenizer under a path (a folder, a `tokenizer.json`, a `.gguf` file) or of resolved model files.

    Raises TokenizerError when the files are missing, unreadable or contradict each other, WeightError for a broken GGUF file.
    """
    if isinstance(source, str | Path):
        path, header = Path(source).expanduser(), None
    else:
        path, header = source.tokenizer_path, source.gguf
    if path.suffix == ".gguf":
        if header is None or header.path != path:
            if not path.is_file():
                raise TokenizerError(f"{path} does not exist: give a folder with tokenizer.json, or a GGUF file, as tokenizer_path")
            header = read_gguf_header(path)
        return tokenizer_from_gguf(header.metadata, str(path))
    return _from_folder(path.parent if path.name == "tokenizer.json" else path)


def _from_folder(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        others = sorted(item.name for item in folder.glob("tokenizer.model")) if folder.is_dir() else []
        raise TokenizerError(
            f"{folder} has no tokenizer.json"
            + (f" (only {others[0]}: save it once with transformers' AutoTokenizer.save_pretrained)" if others else "")
            + "; give the place of one as tokenizer_path"
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception, whatever is wrong with the file
        raise TokenizerError(f"{file} cannot be read: {error}") from error
    settings = {**_read_json(folder / "special_tokens_map.json"), **_read_json(folder / "tokenizer_config.json")}
    _add_listed(backend, settings.get("added_tokens_decoder") or {}, folder)
    _mark_special(backend, settings)
    eos = _named_id(backend, settings, "eos_token", folder)
    return Tokenizer(
        backend,
        bos_token_id=_named_id(backend, settings, "bos_token", folder),
        eos_token_ids=() if eos is None else (eos,),
        chat_template=_chat_template(folder, settings),
    )


def _add_listed(backend: tokenizers.Tokenizer, listed: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Add the tokens that tokenizer_config.json lists and tokenizer.json does not; ids must come out as listed."""
    known = backend.get_added_tokens_decoder()
    for key, entry in sorted(listed.items(), key=lambda item: int(item[0])):
        token_id = int(key)
        if token_id in known and known[token_id].content == entry["content"]:
            continue
        token = _added_token(entry["content"], entry)
        if entry.get("special", False):
            backend.add_special_tokens([token])
        else:
            backend.add_tokens([token])
        found = backend.token_to_id(token.content)
        if found != token_id:
            raise TokenizerError(
                f"{folder}: tokenizer_config.json gives {token.content!r} the id {token_id}, tokenizer.json gives it {found}: "
                "the two files do not belong together"
            )


def _mark_special(backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Mark the tokens that have a role as special. A role that no word of the vocabulary fills stays empty: the model has no row for it."""
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    for content, entry in _role_tokens(settings):
        if content not in special and backend.token_to_id(content) is not None:
            backend.add_special_tokens([_added_token(content, entry)])


def _role_tokens(settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    entries = [settings.get(name) for name in _SPECIAL_NAMES]
    for name in _SPECIAL_LISTS:
        listed = settings.get(name) or []
        entries += list(listed.values()) if isinstance(listed, Mapping) else list(listed)
    for entry in entries:
        if isinstance(entry, str):
            yield entry, {}
        elif isinstance(entry, Mapping):
            yield entry["content"], entry


def _added_token(content: str, entry: Mapping[str, Any]) -> tokenizers.AddedToken:
    flags = {name: bool(entry.get(name, False)) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
    return tokenizers.AddedToken(content, **flags)


def _named_id(backend: tokenizers.Tokenizer, settings: Mapping[str, Any], name: str, folder: Path) -> int | None:
    entry = settings.get(name)
    content = entry["content"] if isinstance(entry, Mapping) else entry
    if content is None:
        return None
    token_id = backend.token_to_id(content)
    if token_id is None:
        raise TokenizerError(f"{folder}: {name} is {content!r}, which the vocabulary of tokenizer.json does not hold")
    return token_id


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template") or _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):  # several named ones
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
        if template is None:
            raise TokenizerError(f"{folder}: chat_template has {', '.join(sorted(named))} and no 'default'")
    return template


def _read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is no file."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{file} holds a {type(content).__name__}, not an object")
    return content
