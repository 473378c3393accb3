"""Model files from the Hugging Face Hub, or from its local cache when the environment forbids the network."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ramet.config import is_hub_offline
from ramet.errors import ModelNotFound

Download = Callable[..., str]
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
CONFIG_PATTERNS: Final = ("*.json", "*.jinja")
WEIGHT_PATTERNS: Final = ("*.safetensors",)
_IGNORED: Final = ("original/*", "consolidated*", "onnx/*")  # second copies of the same weights


def is_hub_id(name: str) -> bool:
    """Whether a model name has the form of a Hub id, `name` or `owner/name`."""
    return _HUB_ID.fullmatch(name) is not None and ".." not in name


def fetch(hub_id: str, revision: str | None, *, with_weights: bool, download: Download | None = None) -> Path:
    """The local folder of a Hub id, downloaded unless the environment says offline; only configs, tokenizer and safetensors.

    `download` takes the place of `huggingface_hub.snapshot_download`. Raises ModelNotFound with the way out, whatever went wrong.
    """
    if download is None:
        from huggingface_hub import snapshot_download

        download = snapshot_download
    is_offline = is_hub_offline()
    patterns = [*CONFIG_PATTERNS, *(WEIGHT_PATTERNS if with_weights else ())]
    try:
        folder = download(hub_id, revision=revision, allow_patterns=patterns, ignore_patterns=list(_IGNORED), local_files_only=is_offline)
    except Exception as error:  # the border to a network library: its kinds of error change from version to version
        raise ModelNotFound(hub_id, _why(error, revision, is_offline)) from error
    return Path(folder)


def _why(error: Exception, revision: str | None, is_offline: bool) -> str:
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    if is_offline:
        return "not in the local Hub cache, and HF_HUB_OFFLINE forbids the network: unset it, download the model once, or give a folder"
    if isinstance(error, GatedRepoError):
        return "access is restricted: ask for it on the model's Hub page, then log in with `hf auth login`"
    if isinstance(error, RevisionNotFoundError):
        return f"the Hub has no revision {revision!r} of it"
    if isinstance(error, RepositoryNotFoundError):
        return "there is no such folder here and no such public model on the Hub: check the name, or log in with `hf auth login`"
    if isinstance(error, LocalEntryNotFoundError):
        return "there is no such folder here, the Hub cannot be reached and the local cache does not hold it: give a folder or a GGUF file"
    return f"the Hub did not deliver it ({type(error).__name__}: {error}): try again, or give a folder"
