"""Running programs: text, roles, variables, forks and joins, and errors that travel."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import InvalidParams, ProgramError, StreamFailed, UnknownVariable, UnsupportedNode
from ramet.lang.backends.scripted import ScriptedBackend
from ramet.lang.nodes import Argument, Fork, Gen, Node, Variable
from ramet.lang.state import ProgramState


def run(func: Any, replies: Any = (), **options: Any) -> ProgramState:
    """Run a function once on a scripted backend; options of the backend begin with `with_`."""
    made = {name.removeprefix("with_"): options.pop(name) for name in list(options) if name.startswith("with_")}
    return sgl.function(func).run(backend=ScriptedBackend(replies, **made), **options)


def test_text_roles_and_messages() -> None:
    def program(s: Any) -> Any:
        s.system("be kind")
        s += sgl.user("u")
        with s.assistant():
            s += "  pre " + sgl.gen("a")
        s += sgl.user_begin() + "again" + sgl.user_end()
        s += sgl.assistant()
        return 7

    state = run(program, ["OUT"])
    assert state.text() == "SYSTEM:be kind\nUSER:u\nASSISTANT:  pre OUT\nUSER:again\nASSISTANT:\n"
    assert state.messages() == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "pre OUT"},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": ""},
    ]
    assert state["a"] == "OUT" and state.get_var("a") == "OUT" and state.ret_value == 7 and state.error() is None


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("qwen", "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"),
        ("chatml", "<|im_start|>user\nu<|im_end|>\n"),
        ("llama-2-chat", "[INST] u [/INST]"),
    ],
)
def test_the_default_system_message_comes_by_itself(template: str, expected: str) -> None:
    def program(s: Any) -> None:
        s += sgl.user("u")

    state = run(program, with_chat_template=template)
    assert state.text() == expected
    assert len(state.messages()) == (2 if template == "qwen" else 1)


def test_llama2_writes_the_system_turn_into_the_user_turn() -> None:
    def program(s: Any) -> None:
        s += sgl.system("sys") + sgl.user("u") + sgl.assistant(sgl.gen("a")) + sgl.user("v")

    state = run(program, ["x"], with_chat_template="llama-2-chat")
    assert state.text() == "[INST] <<SYS>>\nsys\n<</SYS>>\n\nu [/INST]x </s><s>[INST] v [/INST]"


def test_values_of_a_gen_win_over_those_of_the_run() -> None:
    backend = ScriptedBackend(["a b c d", "a b c d"], chat_template="chatml")
    stop = ["S"]

    @sgl.function
    def program(s: Any) -> None:
        s += sgl.gen("x", temperature=0.5, stop=stop) + sgl.gen("y", max_tokens=3)

    program.run(backend=backend, max_new_tokens=2, ignore_eos=True, stop="R").sync()
    first, second = (call.params for call in backend.calls)
    assert first is not None and second is not None
    assert (first.temperature, first.max_new_tokens, first.ignore_eos, first.stop) == (0.5, 2, True, ("S", "<|im_end|>"))
    assert (second.temperature, second.max_new_tokens, second.stop) == (1.0, 3, ("R", "<|im_end|>"))
    assert stop == ["S"]


def test_numbers_stop_at_a_blank() -> None:
    backend = ScriptedBackend(["42 is it"])

    @sgl.function
    def program(s: Any) -> None:
        s += "n=" + sgl.gen_int("n", stop="x")

    assert program.run(backend=backend)["n"] == "42"
    assert backend.calls[0].params is not None and backend.calls[0].params.stop == ("x", " ", "\n")


def test_n_samples_are_a_list_and_the_first_goes_into_the_text() -> None:
    def program(s: Any) -> None:
        s += ">" + sgl.gen("a", n=3)

    state = run(program, [("x", "y", "z")])
    assert state["a"] == ["x", "y", "z"] and state.text() == ">x"
    assert len(state.get_meta_info("a")) == 3
    streamed = run(program, [("x", "y", "z")], stream=True)
    assert list(streamed.text_iter("a")) == ["x"] and streamed["a"] == ["x", "y", "z"]


def test_a_name_generated_twice_gives_the_last_before_the_read() -> None:
    seen = []

    def program(s: Any) -> None:
        for _ in range(20):
            s += sgl.gen("x")
            s += sgl.gen("x")
            seen.append(s["x"])

    run(program, [str(i) for i in range(40)])
    assert seen == [str(2 * i + 1) for i in range(20)]


def test_set_var_in_and_scope() -> None:
    def program(s: Any) -> None:
        assert "a" not in s
        s["a"] = [1]
        s.set_var("b", 2)
        s += "0"
        with s.var_scope("part"):
            s += "1" + sgl.gen("g") + "2"
        assert "part" in s
        s += "3"

    state = run(program, ["G"])
    assert (state["a"], state["b"], state["part"], state.text()) == ([1], 2, "1G2", "01G23")
    assert state.get_meta_info("a") is None and state.get_meta_info("g")["completion_tokens"] == 1


def test_unnamed_gens_only_append() -> None:
    def program(s: Any) -> None:
        s += sgl.gen()

    state = run(program, ["t"])
    assert state.text() == "t"
    with pytest.raises(UnknownVariable, match="no variable 'x' in this state; known: none"):
        state["x"]


def test_reading_waits_but_not_for_ever() -> None:
    gate = threading.Event()

    def reply(prompt: Any, params: Any) -> str:
        gate.wait(5)
        return "late"

    def program(s: Any) -> None:
        s += sgl.gen("x")

    state = run(program, reply)
    with pytest.raises(TimeoutError, match="Timeout while waiting for event 'x'"):
        state.get_meta_info("x", timeout=0.01)
    with pytest.raises(KeyError):
        state.get_meta_info("y", timeout=0.01)
    gate.set()
    assert state["x"] == "late"


@pytest.mark.parametrize(("value", "what"), [(5, "not int"), (None, "Tried to append None to state."), ([1], "not list")])
def test_what_cannot_be_appended_raises_at_once(value: object, what: str) -> None:
    def program(s: Any) -> None:
        s += value

    with pytest.raises(InvalidParams, match=what):
        run(program)


def test_a_state_cannot_be_appended() -> None:
    def program(s: Any) -> None:
        s += s

    with pytest.raises(InvalidParams, match="append its text"):
        run(program)


def test_fork_and_join_keep_the_order_and_gather_meta_info() -> None:
    def program(s: Any) -> None:
        s += "P"
        forks = s.fork(3)
        assert len(forks) == 3
        for i, fork in enumerate(forks):
            fork += f"{i}"
            if i != 1:
                fork += sgl.gen("v")
        forks[2] += sgl.gen("w")
        forks.join()
        s += "Q"

    state = run(program, lambda prompt, params: f"<{prompt.text}>")
    assert state["v"] == ["<P0>", None, "<P2>"] and state["w"] == [None, None, "<P2<P2>>"]
    assert [meta and meta["finish_reason"]["type"] for meta in state.get_meta_info("v")] == ["stop", None, "stop"]
    assert state.text() == "PQ"


def test_a_second_join_of_the_same_names_counts_and_inherited_values_stand_in() -> None:
    def program(s: Any) -> None:
        s["x"] = "parent"
        s["untouched"] = 1
        for text in ("first", "second"):
            forks = s.fork(2)
            forks[0]["x"] = text
            forks.join()
            assert s["x"][0] == text
        assert s["untouched"] == 1

    state = run(program)
    assert state["x"] == ["second", ["first", "parent"]]


def test_children_inherit_variables_meta_info_and_an_open_turn() -> None:
    def program(s: Any) -> None:
        s += sgl.user("u")
        s += sgl.assistant_begin() + "pre " + sgl.gen("a")
        forks = s.fork(2)
        for fork in forks:
            assert fork["a"] == "OUT" and fork.get_meta_info("a")["completion_tokens"] == 1
            fork += " more" + sgl.assistant_end()
            s[f"messages{fork.stream_executor.index}"] = fork.messages()
        forks.join()

    state = run(program, ["OUT"])
    assert state["messages1"][-1] == {"role": "assistant", "content": "pre OUT more"}
    assert state.messages() == [{"role": "user", "content": "u"}]


def test_group_appending() -> None:
    def program(s: Any) -> None:
        forks = s.fork(2)
        forks += sgl.gen("a")
        forks += lambda i: f"-{i}"
        forks += ["x", sgl.gen("b")]
        for wrong in ("text", ["only one"], 5):
            with pytest.raises(InvalidParams):
                forks += wrong
        with pytest.raises(ProgramError):
            forks[0] = s
        s["texts"] = [fork.text() for fork in forks]
        forks.join()

    assert run(program, lambda prompt, params: "g")["texts"] == ["g-0x", "g-1g"]


def test_fork_sizes_and_modes() -> None:
    def program(s: Any) -> None:
        assert len(s.fork(0)) == 0
        s.fork(0).join()
        for wrong in (-1, 1.5, True, "2"):
            with pytest.raises(InvalidParams):
                s.fork(wrong)
        with pytest.raises(InvalidParams, match="Invalid join mode"):
            s.fork(1).join("zip")
        with pytest.raises(UnsupportedNode, match="position_ids_offset"):
            s.fork(1, position_ids_offset=[1])

    run(program).sync()


def test_join_by_text() -> None:
    def program(s: Any) -> None:
        s += "P"
        forks = s.fork(2)
        forks += lambda i: f"[{i}]" + sgl.gen("v")
        forks.join("concate_and_append")
        s += "Q"

    state = run(program, lambda prompt, params: "g")
    assert state.text() == "P[0]g[1]gQ" and state["v"] == ["g", "g"]


def test_copy_leaves_the_text_and_gives_lists_of_one() -> None:
    def program(s: Any) -> None:
        s += "P"
        with s.copy() as c:
            c += "Q" + sgl.gen("v")
        s += "R"

    backend = ScriptedBackend(["g"])
    state = sgl.function(program).run(backend=backend)
    assert state.text() == "PR" and state["v"] == ["g"]
    assert backend.prefixes == []  # one copy shares with no one


def test_the_hint_is_sent_at_every_fork_that_has_something_to_share() -> None:
    def program(s: Any) -> None:
        s.fork(2).join()
        s += "still queued " + sgl.gen("a")
        for _ in range(20):
            s.fork(2).join()

    backend = ScriptedBackend(["A"])
    sgl.function(program).run(backend=backend).sync()
    assert backend.prefixes == ["still queued A"] * 20


def test_forks_of_forks_have_ids_and_groups() -> None:
    backend = ScriptedBackend(lambda prompt, params: "g")

    def program(s: Any) -> None:
        forks = s.fork(2)
        for fork in forks:
            inner = fork.fork(2)
            inner += sgl.gen("v")
            inner.join()
        forks += sgl.gen("w")
        forks.join()

    state = sgl.function(program).run(backend=backend)
    assert state["v"] == [["g", "g"], ["g", "g"]]
    groups: dict[Any, int] = {}
    for call in backend.calls:
        groups[call.prompt.group_id] = groups.get(call.prompt.group_id, 0) + (call.kind == "generate")
    assert sorted(groups.values()) == [2, 2, 2] and len({call.prompt.stream_id for call in backend.calls}) == 6


class Boom(RuntimeError):
    """The backend's own failure."""


@pytest.mark.parametrize("use_thread", [True, False])
def test_a_failure_reaches_every_later_append_and_read(within: Any, use_thread: bool) -> None:
    boom = Boom("no luck")
    raised = []

    def program(s: Any) -> None:
        s += "Q" + sgl.gen("ok")
        assert s["ok"] == "fine"
        try:
            s += sgl.gen("bad")
            s["bad"]
        except StreamFailed as error:
            raised.append(error)
        for action in (
            lambda: s.set_var("x", 1),
            lambda: s["ok"],
            lambda: s["bad"],
            lambda: s.text(),
            lambda: s.messages(),
            lambda: s.sync(),
            lambda: s.fork(2),
            lambda: s.user("x"),
            lambda: s.get_meta_info("bad"),
            lambda: list(s.text_iter("bad")),
            lambda: s.__iadd__("x"),
            lambda: s.__iadd__(sgl.gen("y")),
        ):
            with pytest.raises(StreamFailed, match="no luck") as caught:
                action()
            assert caught.value.__cause__ is boom
        assert s.error() is boom

    state = within(5, lambda: run(program, ["fine", boom], use_thread=use_thread))
    assert raised and raised[0].__cause__ is boom
    assert state.error() is boom
    with pytest.raises(StreamFailed, match=r"failed at Gen\('bad'\): Boom: no luck"):
        state.text()


def test_a_failed_child_fails_the_join_and_the_parent_can_go_on(within: Any) -> None:
    def program(s: Any) -> None:
        s += "P"
        forks = s.fork(2)
        forks += lambda i: sgl.gen(f"v{i}")
        with pytest.raises(StreamFailed, match="no luck"):
            forks.join()
        assert forks[0]["v0"] == "fine"
        s += "Q"

    state = within(5, lambda: run(program, {"v0": "fine", "v1": Boom("no luck")}))
    assert state.text() == "PQ"


def test_a_child_that_no_one_joined_fails_the_program_unless_someone_looked(within: Any) -> None:
    def careless(s: Any) -> None:
        s.fork(2).__iadd__(sgl.gen("v"))

    def careful(s: Any) -> None:
        forks = s.fork(2)
        forks += sgl.gen("v")
        s["errors"] = [type(fork.error()) for fork in forks]

    state = within(5, lambda: run(careless, lambda prompt, params: Boom("no luck")))
    with pytest.raises(StreamFailed, match="no luck"):
        within(5, state.text)
    assert within(5, lambda: run(careful, lambda prompt, params: Boom("no luck")).text()) == ""


def test_after_the_end_nothing_is_taken_and_nothing_hangs(within: Any) -> None:
    kept = []

    def program(s: Any) -> None:
        forks = s.fork(1)
        forks += sgl.gen("v")
        forks.join()
        kept.append(forks[0])
        with pytest.raises(ProgramError, match="joined or its program has ended"):
            forks[0] += "more"
        with pytest.raises(ProgramError):
            forks[0].fork(1)

    state = run(program, ["g"])
    assert kept[0]["v"] == "g" and kept[0].text() == "g"
    with pytest.raises(ProgramError):
        within(5, lambda: state.__iadd__("x"))
    assert state.text() == ""


def test_errors_of_the_function_come_out_of_run(within: Any) -> None:
    def program(s: Any) -> None:
        s += "a"
        with s.user():
            raise Boom("mine")

    with pytest.raises(Boom, match="mine"):
        within(5, lambda: run(program))


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda s: s.user(sgl.assistant("x")), "Nested roles are not allowed"),
        (lambda s: s.__iadd__(sgl.user_end()), "no turn is open"),
        (lambda s: s.__iadd__(sgl.user_begin() + sgl.assistant_end()), "the user turn is open"),
        (lambda s: s.__iadd__(sgl.image("a.png")), r"ScriptedBackend cannot run Image\('a.png'\)"),
        (lambda s: s.__iadd__(sgl.video("a.mp4", 3)), "cannot run Video"),
        (lambda s: s.__iadd__(Fork(s.stream_executor, 2)), r"cannot run Fork\(%"),
        (lambda s: s.__iadd__(Argument("q")), "not known"),
    ],
)
def test_what_cannot_run_is_an_error_of_the_stream(within: Any, build: Any, what: str) -> None:
    def program(s: Any) -> None:
        build(s)
        s.sync()

    with pytest.raises(StreamFailed, match=what):
        within(5, lambda: run(program))


def test_special_nodes_fall_back_to_general_ones() -> None:
    class Shout(Gen):
        """A gen that a backend might know better."""

    class Odd(Node):
        """A node that no one knows."""

    def program(s: Any) -> None:
        s += Shout("a")

    def odd(s: Any) -> None:
        s += Odd()
        s.sync()

    assert run(program, ["x"])["a"] == "x"
    with pytest.raises(StreamFailed, match="ScriptedBackend cannot run"):
        run(odd)


def test_a_backend_that_takes_images_places_them() -> None:
    class Seeing(ScriptedBackend):
        def fill_image(self, s: Any, image: Any) -> str:
            return "<image>"

    @sgl.function
    def program(s: Any) -> None:
        s += "see " + sgl.image("a.png") + sgl.video("b.mp4", 2)

    assert program.run(backend=Seeing()).text() == "see <image><image>"


def test_variables_of_another_stream_can_be_appended_before_they_exist(within: Any) -> None:
    def program(s: Any) -> None:
        forks = s.fork(2)
        forks[0] += sgl.gen("x")
        forks[1] += "got " + Variable("x", forks[0].stream_executor)
        forks[0] += Variable("x", forks[0].stream_executor) + sgl.gen("x")
        s["text"] = forks[1].text()
        s["own"] = forks[0].text()
        forks.join()

    state = within(5, lambda: run(program, lambda prompt, params: f"v{len(prompt.text)}", with_latency_s=0.02))
    assert state["text"] == "got v0" and state["own"] == "v0v0v4"


def test_a_program_can_go_on_in_another_and_run_another() -> None:
    @sgl.function
    def part(s: Any, word: str) -> str:
        s += word + sgl.gen("g")
        return "returned"

    def program(s: Any) -> None:
        s += "1"
        assert part(s, "2") == "returned"
        own = part("3", backend=ScriptedBackend(["own"]))
        s += own["g"]

    assert run(program, ["G"]).text() == "12Gown"


def test_arguments_and_backends_are_checked() -> None:
    @sgl.function
    def program(s: Any, a: int, b: int = 2) -> None:
        s += f"{a}{b}"

    backend = ScriptedBackend()
    with pytest.raises(InvalidParams, match="Please specify a backend"):
        program.run(a=1)
    with pytest.raises(TypeError):
        program.run(backend=backend)
    with pytest.raises(InvalidParams, match="program has no such argument; it has a, b"):
        program.bind(c=1)
    with pytest.raises(InvalidParams, match='The first argument must be "s"'):
        sgl.function(lambda state: None)
    with pytest.raises(InvalidParams, match="temperature"):
        program.run(a=1, backend=backend, temperature=-2)
    with pytest.raises(UnsupportedNode, match="num_api_spec_tokens=8"):
        sgl.function(num_api_spec_tokens=8)(program.func).run(a=1, backend=backend)
    sgl.set_default_backend(backend)
    assert program.run(1).text() == "12" and program(a=3, b=4).text() == "34"
    assert program.bind(b=9).run(1, b=5).text() == "19"


def test_backend_functions_without_a_backend() -> None:
    assert sgl.flush_cache() is False and sgl.get_server_info() is None
    assert sgl.get_server_info(ScriptedBackend())["model_name"] == "scripted"  # type: ignore[index]


def test_verbosity_writes_finished_programs(capsys: pytest.CaptureFixture[str]) -> None:
    def program(s: Any) -> None:
        s += "said"

    sgl.global_config.verbosity = 2
    run(program).sync()
    sgl.global_config.verbosity = 0
    run(program).sync()
    assert capsys.readouterr().out == "said\n"


def test_no_thread_without_a_call_and_none_left_after_one() -> None:
    names = []

    def program(s: Any) -> None:
        s += sgl.user("constants only")
        names.extend(thread.name for thread in threading.enumerate())

    def call(s: Any) -> None:
        s += sgl.gen("a")

    run(program).sync()
    assert not [name for name in names if name.startswith("ramet-stream-")]
    run(call, ["x"]).sync()
    deadline = time.monotonic() + 2
    while any(thread.name.startswith("ramet-stream-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline


def test_no_more_threads_is_an_error_and_no_hang(within: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real_start = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("ramet-stream"):
            raise RuntimeError("can't start new thread")
        real_start(thread)

    def program(s: Any) -> None:
        s += sgl.gen("a")
        s["a"]

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(StreamFailed, match="can't start new thread"):
        within(5, lambda: run(program, ["x"]))
