"""Lines of many scripts, made from a seed: words that come again, digits, code, emoji, marks, spaces."""

from __future__ import annotations

import unicodedata
from random import Random

_TEXT = (
    "the of and to in is that for it was on are as with his they be at one have this from or had by not but what some "
    "we can out other were all there when up use your how said an each she which do their time if will way about many "
    "tokenizer don't isn't we've they're I'm he'd you'll naïve café façade résumé über straße größer Äpfel garçon "
    "señor mañana coração São żółć příliš žluťoučký kůň İstanbul ışık Ångström smørrebrød hvað þú ΟΔΥΣΣΕΥΣ λόγος "
    "Θάλασσα σοφός Привет мир Москва язык Київ їжак Ђорђе שלום עולם بِسْمِ مرحبا العالم فارسی हिन्दी नमस्ते বাংলা தமிழ் "
    "ภาษาไทย 漢字 日本語 ひらがな カタカナ ﾊﾝｶｸ 한국어 안녕하세요 中文 繁體字 𠀋 𝐀𝐁𝟙 ﬁne ﬂow Ⅷ ½ ² ① Ǆ ﷺ Ａｂｃ"
)
WORDS = tuple(_TEXT.split())
EMOJI = ("😀", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷", "❤️", "☃", "✓", "™", "1️⃣")
CODE = (
    "def f(x): return x+1", "if (a && b) { c[i] = 0x1F; }", "<div class=\"a\">&amp;</div>", "SELECT * FROM t;",
    "x = {'k': [1, 2.5e-3]}", "// TODO: 100% done?!", "a->b::c<d>()", "#include <stdio.h>", "$HOME/.bashrc", "\\n\\t",
)  # fmt: skip
SPACES = (
    " ",
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\t",
    "\u00a0",
    "\u3000",
    "\u2003",
    "\n",
    "\r\n",
    "\n\n",
    " \n ",
    "\u2028",
    "\x85",
)
RARE = (
    "\x00",
    "\x01",
    "\x1b",
    "\x1c",
    "\x7f",
    "\x80",
    "\ufeff",
    "\u200b",
    "\u200d",
    "\ufffd",
    "\ue000",
    "\u202e",
    "\u00ad",
)
PICTURES = 0x1F300
BLOCKS = (
    (0x21, 0x7E), (0xA1, 0x17F), (0x370, 0x3FF), (0x400, 0x52F), (0x591, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F),
    (0xE00, 0xE5B), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x2010, 0x2060), (0x2190, 0x21FF), (0x3040, 0x30FF),
    (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xFB00, 0xFB06), (0xFF01, 0xFFDC), (0x1D400, 0x1D7FF), (PICTURES, 0x1F5FF),
    (0x20000, 0x2A6D6), (0x300, 0x36F),
)  # fmt: skip
SPECIAL = ("<s>", "</s>", "[CLS]", "[MASK]", "<|endoftext|>", "<pad>", "<unk>", "[UNK]", "<new>")


def _drawn(random: Random) -> str:
    """Characters of one block; but for pictures, those that have been in Unicode for long: tables differ in age."""
    low, high = random.choice(BLOCKS)
    drawn = [chr(random.randint(low, high)) for _ in range(random.randint(1, 6))]
    known = unicodedata if low == PICTURES else unicodedata.ucd_3_2_0
    return "".join(item for item in drawn if known.category(item) != "Cn")


def _number(random: Random) -> str:
    number = str(random.randint(0, 10 ** random.randint(1, 12)))
    return random.choice((number, f"{number}.5", f"${number}", f"{number}%", "٣٤٥", "१२३", "1,000,000"))


def _word(random: Random) -> str:
    """Some words are common and some are not."""
    word = WORDS[min(int(random.expovariate(1 / 25)), len(WORDS) - 1)]
    return random.choice((word, word, word, word.capitalize(), word.upper(), word + random.choice(".,!?;:")))


def _part(random: Random) -> str:
    kind = random.random()
    if kind < 0.7:
        return _word(random)
    if kind < 0.78:
        return _number(random)
    if kind < 0.86:
        return _drawn(random)
    if kind < 0.9:
        return random.choice(EMOJI)
    if kind < 0.94:
        return random.choice(CODE)
    if kind < 0.96:
        return random.choice(SPECIAL)
    if kind < 0.98:
        return random.choice(RARE)
    return "e" + "".join(chr(random.randint(0x300, 0x345)) for _ in range(random.randint(1, 4)))


def _line(random: Random) -> str:
    parts = []
    for _ in range(random.randint(1, 14)):
        parts += [_part(random), random.choice(SPACES) if random.random() < 0.3 else " "]
    edge = random.random()
    line = "".join(parts if edge < 0.3 else parts[:-1])
    return f"{random.choice(SPACES)}{line}" if edge > 0.9 else line


def lines(count: int, seed: int = 1) -> list[str]:
    """That many lines; a few are empty, long or one character."""
    random = Random(seed)
    edges = [
        "",
        " ",
        "a",
        "▁",
        "▁▁a ▁",
        "\n",
        "a" * 300,
        "ab " * 200,
        "'s",
        " 's 'S 'ſ",
        "ΣΑΣ ΟΔΟΣ",
        "İı",
        "\U0010ffff",
    ]
    return [*edges, *(_line(random) for _ in range(count - len(edges)))]
