"""What bench/constraint.py compiles: the paper's character record with texts that match it, and patterns that are hard on engines."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

STRING = r'"[0-9A-Za-z_ \t\n\r\x0b\x0c]{1,16}"'  # `[\w\d\s]{1,16}` in ASCII, spelled so that it means the same to every side
RECORD = "".join(
    [
        r'\{\n    "name": ' + STRING,
        r',\n    "house": "(Gryffindor|Slytherin|Ravenclaw|Hufflepuff)"',
        r',\n    "blood status": "(Pure-blood|Half-blood|Muggle-born)"',
        r',\n    "occupation": "(student|teacher|auror|ministry of magic|death eater|order of the phoenix)"',
        r',\n    "wand": \{\n        "wood": ' + STRING,
        r',\n        "core": ' + STRING,
        r',\n        "length": [0-9]{1,2}\.[0-9]{0,2}\n    \}',
        r',\n    "alive": "(Alive|Deceased)"',
        r',\n    "patronus": ' + STRING,
        r',\n    "bogart": ' + STRING,
        r"\n\}",
    ]
)


def records(count: int, seed: int = 0) -> list[str]:
    """Texts that the record's pattern matches."""
    rng = random.Random(seed)
    people = ["Harry", "Luna", "Draco", "Sirius", "Minerva", "11", "7", "2nd"]
    words = [*people, "holly", "yew", "ash", "phoenix", "dragon", "unicorn", "stag", "otter", "hare", "spider", "clown", "mirror", "vine"]

    def string() -> str:
        text = " ".join(rng.choice(words) for _ in range(rng.randint(1, 3)))
        return text[:16].strip()

    texts = [
        "{\n"
        f'    "name": "{string()}",\n'
        f'    "house": "{rng.choice(["Gryffindor", "Slytherin", "Ravenclaw", "Hufflepuff"])}",\n'
        f'    "blood status": "{rng.choice(["Pure-blood", "Half-blood", "Muggle-born"])}",\n'
        f'    "occupation": "{rng.choice(["student", "teacher", "auror", "ministry of magic", "death eater", "order of the phoenix"])}",\n'
        '    "wand": {\n'
        f'        "wood": "{string()}",\n'
        f'        "core": "{string()}",\n'
        f'        "length": {rng.randint(5, 19)}.{rng.choice(["", "5", "25", "75"])}\n'
        "    },\n"
        f'    "alive": "{rng.choice(["Alive", "Deceased"])}",\n'
        f'    "patronus": "{string()}",\n'
        f'    "bogart": "{string()}"\n'
        "}"
        for _ in range(count)
    ]
    assert all(re.fullmatch(RECORD, text) for text in texts), "the samples are records"
    return texts


@dataclass(frozen=True, slots=True)
class Hard:
    """A pattern that has brought engines down; peers get `peer_text` where they write the same thing in another way."""

    name: str
    text: str
    peer_text: str | None = None


def hard_patterns() -> list[Hard]:
    """Patterns whose automata are large, or that cost an engine much in other ways."""
    rng = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ar", "en", "il")]
    enum: dict[str, None] = {}
    while len(enum) < 2000:
        enum["".join(rng.choice(syllables) for _ in range(rng.randint(2, 4)))] = None
    letters = "|".join("abcdefghijklmnopqrstuvwxyz")
    octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    return [
        Hard(".{0,5000}", ".{0,5000}"),
        Hard("(a|b|..|z){1,200}", f"({letters}){{1,200}}"),
        Hard("2,000-word enum", "|".join(enum)),
        Hard(".*a.{12}|.*b", ".*a.{12}|.*b"),
        Hard("([^a]|a[^b]|ab[^c]){0,100}", "([^a]|a[^b]|ab[^c]){0,100}"),
        Hard("e-mail", r"[A-Za-z0-9._%+-]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}"),
        Hard("URL", r"https?://([a-z0-9-]{1,63}\.){1,5}[a-z]{2,24}(:[0-9]{1,5})?(/[A-Za-z0-9._~%!$&'()*+,;=:@-]*)*(\?[^# ]*)?(#[^ ]*)?"),
        Hard(
            "RFC 3339",
            r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)"
            r"(\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])",
        ),
        Hard(r"[\w\d\s]{1,64}, Unicode", r"(?u)[\w\d\s]{1,64}", r"[\w\d\s]{1,64}"),
        Hard("IPv4", rf"({octet}\.){{3}}{octet}"),
        Hard("(a?){200}a{200}", "(a?){200}a{200}"),
        Hard("((a|b)*c){1,50}", "((a|b)*c){1,50}"),
        Hard("(a+)+b", "(a+)+b"),
        Hard("(x+x+)+y", "(x+x+)+y"),
        Hard(".{0,100}.{0,100}.{0,100}", ".{0,100}.{0,100}.{0,100}"),
        Hard("(.*,){20}x", "(.*,){20}x"),
        Hard('[^\\x00-\\x1f"\\\\]{0,1000}', r'[^\x00-\x1f"\\]{0,1000}'),
        Hard("(日本|中国|한국|é)*", "(日本|中国|한국|é)*"),
    ]
