"""The tree of errors: every kind can be pickled and copied, with what it says and what it holds."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ramet import errors
from ramet.errors import RametError

# Arguments of the kinds that take more than a message.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "InvalidParams": ("top_p", 3.0, "must be at most 1"),
    "InvalidPattern": ("regex", "(", "is not closed"),
    "InvalidConstraint": ("regex", "a(b", "is not closed", 1),
    "StopPatternTooSlow": ("(a+)+", 0.5),
    "PromptTooLong": (12, 10, "the context length"),
    "UnsupportedFeature": ("beam_width", "use n"),
    "ConfigError": ("page_size", 0, "must be at least 1"),
    "UnknownChatTemplate": ("chat_template", "x", "unknown"),
    "ModelNotFound": ("m", "nothing here"),
    "QueueFull": (3, 2),
    "UnsupportedNode": ("Image('a')", "EngineBackend", "it takes text only"),
    "UnknownVariable": ("a", ("b", "c")),
}


def kinds(root: type[RametError] = RametError) -> Iterator[type[RametError]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


OWN_KINDS = sorted({kind for kind in kinds() if kind.__module__ == errors.__name__}, key=lambda kind: kind.__name__)


def through_pickle(error: RametError) -> RametError:
    twin: RametError = pickle.loads(pickle.dumps(error))
    return twin


@pytest.mark.parametrize("kind", OWN_KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("twin_of", [through_pickle, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_every_error_has_a_twin(kind: type[RametError], twin_of: Callable[[RametError], RametError]) -> None:
    error = kind(*ARGUMENTS.get(kind.__name__, ("what went wrong",)))
    error.add_note("row 3 of run_batch")
    twin = twin_of(error)
    assert twin is not error
    assert type(twin) is kind
    assert str(twin) == str(error)
    assert twin.args == error.args
    assert vars(twin) == vars(error) and twin.__notes__ == ["row 3 of run_batch"]


def test_every_error_of_the_module_is_in_the_tree_and_in_its_picture() -> None:
    defined = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BaseException)}
    assert defined == set(OWN_KINDS)
    drawn = re.findall(r"^[│├└─ ]*([A-Z]\w+)", errors.__doc__ or "", flags=re.MULTILINE)
    assert set(drawn) - {"The"} == {kind.__name__ for kind in OWN_KINDS}
