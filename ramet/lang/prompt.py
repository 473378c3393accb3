"""The text of one prompt state: what has been said, in which turn we are, and what a backend gets to see of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ramet.errors import ProgramError
from ramet.lang.chat import ChatTemplate


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a backend sees of a state at one call.

    `text` is the whole prompt, `messages` the closed turns (`role`, `content`), `role` the open turn. `name` is the variable that the
    call is for. Siblings of one fork have the same `group_id`. `is_abandoned()` tells, at any time during the call, whether its result is
    of no use any more: the program has failed elsewhere.
    """

    text: str
    messages: tuple[Mapping[str, Any], ...] = ()
    role: str | None = None
    name: str | None = None
    stream_id: str = ""
    group_id: str | None = None
    is_abandoned: Callable[[], bool] = field(default=lambda: False, compare=False, repr=False)


class Transcript:
    """Text, closed turns, the open turn and the open variable scopes. Used by one thread at a time; reading `text` is always safe."""

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.text = ""
        self.messages: list[dict[str, Any]] = []
        self.role: str | None = None
        self._role_begin = 0
        self._scopes: list[tuple[str, int]] = []

    def copy(self) -> Transcript:
        """The same state on its own; an open turn stays open, variable scopes do not follow."""
        twin = Transcript(self.template)
        twin.text, twin.messages = self.text, list(self.messages)
        twin.role, twin._role_begin = self.role, self._role_begin
        return twin

    def needs_default_system(self, role: str) -> bool:
        """Whether the template's own system message belongs before this turn."""
        return not self.messages and role != "system" and bool(self.template.default_system_prompt)

    def prefix(self, role: str) -> str:
        """The text that opens a turn; raises ProgramError inside another turn."""
        if self.role is not None:
            raise ProgramError(f"Nested roles are not allowed. Close the {self.role} turn before the {role} turn begins.")
        return self.template.get_prefix_and_suffix(role, self.messages)[0]

    def begin_role(self, role: str) -> None:
        """The turn's own text begins here."""
        self.role, self._role_begin = role, len(self.text)

    def suffix(self, role: str) -> str:
        """The text that closes the open turn; raises ProgramError when it is another one."""
        if self.role != role:
            raise ProgramError(f"the {role} turn cannot end here: {f'the {self.role} turn is open' if self.role else 'no turn is open'}")
        return self.template.get_prefix_and_suffix(role, self.messages)[1]

    def end_role(self) -> None:
        """Record the open turn, as a message; its text ends here."""
        assert self.role is not None, "no turn is open"
        self.messages.append({"role": self.role, "content": self.text[self._role_begin :].lstrip()})
        self.role = None

    def begin_scope(self, name: str) -> None:
        """Text from here on belongs to `name`."""
        self._scopes.append((name, len(self.text)))

    def end_scope(self, name: str) -> str:
        """The text since the scope's begin; raises ProgramError when the innermost open scope is another one."""
        if not self._scopes or self._scopes[-1][0] != name:
            raise ProgramError(
                f"the variable scope {name!r} cannot end here: {[scope for scope, _ in self._scopes]} are open in this state"
            )
        return self.text[self._scopes.pop()[1] :]


def text_of(value: object) -> str:
    """How a variable's value reads as text; of several samples, the first."""
    if isinstance(value, list):
        return text_of(value[0]) if value else ""
    return value if isinstance(value, str) else str(value)
