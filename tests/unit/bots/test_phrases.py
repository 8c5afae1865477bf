"""Short messages in several languages: consent, refusals, wishes to stop, and what is none of them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.inbound.audience import judge_attention
from bots.inbound.phrases import (
    is_stop_wish,
    parse_admin_command,
    parse_command,
    parse_follow_command,
    read_consent,
)
from core.domain.threads import Person, ThreadParticipants

CONSENT = {
    "en": [
        "yes",
        "yes, go ahead",
        "approved 👍",
        "Sure, please do it!",
        "OK :+1::skin-tone-3:",
        "go for it",
        "LGTM",
        "yes thanks",
        "ok, go ahead, thanks",
        "yes~",
        "yess 👍🏿",
        "Yea, you can go ahead",
        "oui, go ahead bitte",
        "ok go",
    ],
    "de": [
        "ja",
        "Ja, mach das bitte",
        "Klar, leg los!",
        "genehmigt ✅",
        "In Ordnung.",
        "Einverstanden, danke",
    ],
    "fr": ["oui", "Oui, vas-y !", "d’accord", "C'est bon", "je valide 👍🏽", "Bien sûr"],
    "es": [
        "sí",
        "Sí, adelante",
        "¡Claro que sí!",
        "hazlo, por favor",
        "lo apruebo",
        "de acuerdo, gracias",
    ],
    "pt": [
        "sim",
        "Sim, pode fazer",
        "vá em frente",
        "aprovado, obrigado",
        "Claro que sim!",
        "com certeza",
    ],
    "ja, zh": [
        "はい、お願いします",
        "いいですよ",
        "承認します。",
        "好的，可以",
        "同意",
        "可以，谢谢",
    ],
}
REFUSAL = {
    "en": [
        "no",
        "No, that's the wrong file.",
        "Nope: a dangerous command",
        "don't",
        "please don't",
        "Denied ❌",
        "no thanks",
    ],
    "de": [
        "nein",
        "Nein, danke!",
        "bitte nicht",
        "auf keinen Fall",
        "Nein: falscher Ordner",
        "nein, nicht jetzt",
    ],
    "fr": ["non", "non merci", "surtout pas !", "Ne fais pas ça"],
    "es": ["no", "no, gracias", "de ninguna manera", "no lo hagas"],
    "pt": ["não", "não, obrigado", "de jeito nenhum", "não faça isso"],
    "ja, zh": ["いいえ", "だめです", "不行", "不同意"],
    "several phrases": [
        "No, don't do it",
        "no, leave it",
        "nah leave it",
        "nein, lass es lieber",
        "non, laisse",
        "no, déjalo",
        "não, deixa",
        "いや、やめて",
        "不用了，别做",
        "no thanks",
        "nope, please don't",
        "No. Stop.",
        "better not",
        "no no no",
        "nein danke, bitte nicht",
        "nee, lass mal",
        "non merci, ne fais pas ça",
        "no, mejor no",
        "いいえ、結構です",
        "不要，取消吧",
        "please don't, thanks",
        "não, por favor não faças isso",
        "no!! cancel it",
        "だめです。やめてください",
        "No! Stop!",
        "don't, stop!",
        "不要，停",
        "No - leave it",
        "いや、いらない",
        "non non, laisse tomber",
        "nevermind",
        "don't approve",
        "ich stimme nicht zu",
        "Mach das bitte nicht!",
        "je n'approuve pas",
        "no autorizo",
        "não autorizo",
        "嫌です",
        "お断りします",
        "我反对",
    ],
}
NO_REFUSAL = [
    "No. 3 is the right one",
    "No. 3 is the wrong one",
    "no, let's do it",
    "no, it's the right file, run it",
    "No, it isn't wrong",
    "no, it's wrong but run it anyway",
    "no, not now but at noon",
    "No, not that one. Go ahead",
    "Nope, all good",
    "No, bob, lunch at 1",
    "no, not you Bob",
    "nah, I'm at home tonight",
    "no, the standup is at 10",
    "nein, der richtige Ordner",
    "Nein, mach das",
    "non, c'est bon",
    "no, está bien",
    "não, tudo bem",
]
"""Sentences that begin like a refusal and are none."""
UNCLEAR = [
    "ok thanks",
    "Okay, thank you!",
    "ok merci",
    "vale, gracias",
    "That's okay, thank you",
    "it’s fine, thanks",
    "ok great thanks",
    "okay, perfect, thank you",
    "passt, danke",
    "ok, vielen dank",
    "alles klar, danke",
    "C'est bon, merci",
    "d'accord merci",
    "está bien, gracias",
    "vale, muchas gracias",
    "tudo bem, obrigado",
    "ok valeu",
    "好的，谢谢",
    "~yes~",
    "~~go ahead~~",
    '"yes"',
    "“go ahead”",
    "> yes",
    "> Shall I run it?\nyes",
    "`yes`",
    "||yes||",
    *NO_REFUSAL,
    "yes but first rename the file",
    "no problem",
    "not yet",
    "yes?",
    "no, wait",
    "no, go ahead",
    "yes and no",
    "ok, what does it cost?",
    "I said yes to Bob",
    "maybe",
    "hm",
    "lunch?",
    "Not on a Friday",
    "later",
    "do it tomorrow",
    "sure, but on staging",
    "don't stop",
    "yes 🙄",
    "👍👎",
    "ja, aber erst umbenennen",
    "noch nicht",
    "kein Problem",
    "oui mais d'abord renomme-le",
    "pas encore",
    "pas de souci",
    "sí, pero primero cámbialo",
    "todavía no",
    "si quieres",
    "sim, mas primeiro renomeie",
    "ainda não",
    "sem problema",
    "はい、でも先に名前を変えて",
    "まだです",
    "好的，但是先改名字",
    "还没",
    "no problem, go ahead",
    "why?",
    "what is it?",
    "no, wait, first show me the diff",
    "not sure",
    "no idea",
    "no, only the first two files",
    "nein, erst morgen",
    "no worries",
    "kein Problem, mach ruhig",
    "pas de problème",
    "no hay problema, hazlo",
    "sem problema, pode fazer",
    "いや、ちょっと待って",
    "没问题",
    "no, yes, do it",
    "why not",
    "don't forget the tests",
    "no way around it, do it",
    "leave it on",
    "no, what would it change?",
    "don't you need my password?",
    "cancel the old one first",
    "don't cancel",
    "never stop",
    "不要停",
    "别停",
    "don't leave it",
    "don't forget it",
    "never mind, go ahead",
    "laisse, vas-y",
    "deixa, pode fazer",
    "no, leave it on",
    "别忘了",
]
STOP = [
    "stop",
    "please stop",
    "stop it now",
    "STOP!!!",
    "can you stop please",
    "cancel that",
    "bitte hör auf",
    "stopp",
    "abbrechen",
    "arrête s'il te plaît",
    "para, por favor",
    "detente ahora",
    "pare, por favor",
    "止めてください",
    "停下来",
]
NO_STOP = [
    "don't stop",
    "stop the presses",
    "nicht aufhören",
    "ne t'arrête pas",
    "no pares",
    "não pare",
    "止めないで",
    "别停",
    "stop by my desk",
    "where is the bus stop",
    "stop using pandas",
]


@pytest.mark.parametrize("text", [one for group in CONSENT.values() for one in group])
def test_clear_consent_approves(text: str) -> None:
    assert read_consent(text) is True


@pytest.mark.parametrize("text", [one for group in REFUSAL.values() for one in group])
def test_a_clear_no_refuses(text: str) -> None:
    assert read_consent(text) is False


@pytest.mark.parametrize("text", UNCLEAR)
def test_anything_else_is_neither(text: str) -> None:
    assert read_consent(text) is None


@pytest.mark.parametrize("text", STOP)
def test_a_plain_wish_to_stop_is_one(text: str) -> None:
    assert is_stop_wish(text)


@pytest.mark.parametrize("text", NO_STOP)
def test_other_words_with_stop_are_none(text: str) -> None:
    assert not is_stop_wish(text)


@given(
    st.sampled_from([one for group in CONSENT.values() for one in group]),
    st.text("abcdefghij", min_size=4),
)
def test_consent_with_any_further_word_is_no_consent(consent: str, word: str) -> None:
    assert read_consent(f"{consent} {word}q") is None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("stay quiet here", "quiet"),
        ("please be quiet", "quiet"),
        ("Stay quiet in this channel.", "quiet channel"),
        ("only answer when mentioned", "mention"),
        ("follow mention channel", "mention channel"),
        ("follow this thread again please", None),
        ("follow", "follow"),
        ("sei still", "quiet"),
        ("follow the instructions", None),
    ],
)
def test_follow_modes_are_chosen_in_words(text: str, command: str | None) -> None:
    assert parse_follow_command(text) == command


ALICE, BOB = Person(person_id="U1", name="alice"), Person(person_id="U2", name="Bob Smith")
SMALL_TALK = ThreadParticipants(
    participants=(ALICE, BOB), last_requester_id="U1", is_among_people=True
)


@pytest.mark.parametrize(
    "text",
    [
        "Bob, can you add the totals?",
        "hey bob make it shorter",
        "thanks, Bob",
        "@carol fix the table",
    ],
)
def test_a_message_that_calls_somebody_by_name_is_theirs(text: str) -> None:
    assert judge_attention(text, ALICE, SMALL_TALK) is None


def test_a_name_inside_a_request_does_not_make_it_theirs() -> None:
    assert judge_attention("send the table to Bob", ALICE, SMALL_TALK) == "clear"


@pytest.mark.parametrize(
    "text",
    ["the one from Tuesday", "hm, the numbers look odd", "yes please", "lunch plans for the team"],
)
def test_what_one_person_alone_writes_is_for_the_agent(text: str) -> None:
    assert judge_attention(
        text, ALICE, ThreadParticipants(participants=(ALICE,), last_requester_id="U1")
    )


@pytest.mark.parametrize("text", ["thanks!", "lol", "👍", "great, thank you so much"])
def test_thanks_start_nothing_even_from_one_person(text: str) -> None:
    assert (
        judge_attention(
            text, ALICE, ThreadParticipants(participants=(ALICE,), last_requester_id="U1")
        )
        is None
    )


@given(
    st.sampled_from(
        ["good morning ", "no ", "hi, ", "who ", "yes, ", "@", "what is that ", "((", "好"]
    ),
    st.integers(1, 5000),
)
def test_long_messages_take_no_time(part: str, times: int) -> None:
    began = time.process_time()
    text = part * times + "x"
    judge_attention(text, ALICE, SMALL_TALK)
    read_consent(text)
    is_stop_wish(text)
    parse_follow_command(text)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("text", ["pair programming", "pair them", "pair together", "pair up"])
def test_talk_of_pairs_is_no_command(text: str) -> None:
    assert parse_admin_command(text) is None


@pytest.mark.parametrize("code", ["ABCD-2345", "abcd2345", "`ABCD-2345`"])
def test_a_code_is_paired(code: str) -> None:
    assert parse_admin_command(f"pair {code}") == ("pair", code)


@pytest.mark.parametrize("text", ["use both", "use this", "Use it", "use the"])
def test_no_agent_has_the_name_of_a_pronoun(text: str) -> None:
    assert parse_command(text) is None
    assert parse_command("use thesis-writer") == ("use", "thesis-writer")
