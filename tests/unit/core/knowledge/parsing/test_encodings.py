"""Text in encodings that the file does not name."""

import pytest

from core.knowledge.document import ParseLimits, Unreadable
from core.knowledge.parsing.encodings import decode_text
from core.knowledge.parsing.html import read_html

ENGLISH = "“It’s fine”, they said; don’t worry – we’ll see. "
RUSSIAN = "Привет, мир! Это проверка.\r\n"
LANGUAGES = {
    "Russian": RUSSIAN,
    "Greek": "Καλημέρα, κόσμε. Πώς είσαι;\n",
    "Hebrew": "שלום עולם, מה שלומך?\n",
    "Polish": "Zażółć gęślą jaźń, prędko.\n",
    "Chinese": "知识库可以回答问题，数据不会丢失。\n",
    "English": ENGLISH,
    "one word": "Größe",
}


@pytest.mark.parametrize("text", LANGUAGES.values(), ids=LANGUAGES)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-8", "utf-8-sig"])
@pytest.mark.parametrize("times", [1, 2_000])
def test_any_language_is_read_in_unicode(text: str, encoding: str, times: int) -> None:
    assert decode_text((text * times).encode(encoding)) == text * times


@pytest.mark.parametrize(
    "text",
    [
        ENGLISH,
        "It’s fine, don’t worry.",
        "Äpfel",
        "Ärzte für alle",
        "Année après année: déjà vu à l’école, n’est-ce pas?",
        "São Paulo, coração",
        "£100, 5 °C, §7 – ½ price…",
    ],
)
def test_western_text_is_not_taken_for_east_asian(text: str) -> None:
    assert decode_text(text.encode("cp1252")) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("テスト", "shift_jis"),
        ("これは日本語の文章です。3月5日", "shift_jis"),
        ("我們明天再討論這個問題 OK", "big5"),
        ("第1章 我们的知识库", "gb18030"),
    ],
)
def test_short_east_asian_text_is_recognised(text: str, encoding: str) -> None:
    assert decode_text(text.encode(encoding)) == text


@pytest.mark.parametrize("damage", [b"\xff", b"\xc3", b"\xe2\x82"])
def test_a_damaged_character_does_not_spoil_the_others(damage: bytes) -> None:
    whole = ("Größe und Äpfel überall, Straße. " * 10).encode()
    text = decode_text(whole + damage + b" end " + whole)
    assert text.replace("\ufffd", "") == whole.decode() + " end " + whole.decode()


@pytest.mark.parametrize(
    "content",
    [
        b"\x7fELF\0\0\0\0" * 100,
        b"alpha\0beta\0gamma\0delta\0" * 50,
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\3\x84" * 20,
        bytes(range(256)) * 40,
        b"\0",
    ],
)
def test_binary_content_is_no_text(content: bytes) -> None:
    with pytest.raises(Unreadable, match="unsupported"):
        decode_text(content)


@pytest.mark.parametrize("declared", ["iso-8859-1", "latin1", "windows-1252", "no-such-code"])
def test_the_declared_western_code_page_is_the_one_of_browsers(declared: str) -> None:
    assert decode_text(ENGLISH.encode("cp1252"), declared) == ENGLISH


@pytest.mark.parametrize("declared", ["utf-16", "UTF-7", "punycode", "idna", "unicode_escape", "hex"])
def test_a_declaration_that_cannot_be_true_is_ignored(declared: str) -> None:
    page = f"<meta charset={declared}><p>Größe und Äpfel".encode("cp1252")
    assert read_html(page, ParseLimits()).pages[0].text == "Größe und Äpfel"


def test_a_declared_code_page_counts() -> None:
    assert decode_text(RUSSIAN.encode("cp1251"), "windows-1251") == RUSSIAN
