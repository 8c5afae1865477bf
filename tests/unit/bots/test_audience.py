"""Who a message without a mention is for, among three people who work with each other and with the agent."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bots.inbound.audience import answers_nothing, judge_attention, reads_as_answer
from core.domain.threads import Ask, Attention, Person, ThreadParticipants
from tests.unit.bots.thread_scenes import (
    BY_OTHERS,
    BY_THE_REQUESTER,
    OF_COLLEAGUES,
    OFFERS,
    SCENES,
    Scene,
)

PEOPLE = {name: Person(person_id=name, name=name) for name in ("ann", "ben", "cy")}
ALL = tuple(PEOPLE.values())
KNOWN_MISTAKE = "did you file the expense report?"
"""It has a file and a report, comes right after the agent's words, and is for a colleague."""
WORK = "Make the sales report.\nThe sales report: 300 customers, most of them in Berlin."
AFTER_TALK = ThreadParticipants(
    participants=ALL, last_requester_id="ann", is_among_people=True, work=WORK, talk="a long day"
)
AFTER_THE_ANSWER = ThreadParticipants(participants=ALL, last_requester_id="ann", work=WORK)
Judged = tuple[str, bool, Attention | None]


def judged(scene: Scene) -> Iterator[Judged]:
    """Each line of the scene, whether it is meant for the agent, and how sure it is of that."""
    requester, request, answer, every = scene
    requests, answers, talk = [request], [answer], list[str]()
    for author, text, *answer_now in every:
        now = ThreadParticipants(
            participants=ALL,
            last_requester_id=requester,
            is_among_people=bool(talk),
            work="\n".join([*requests, *answers[-3:]]),
            talk="\n".join(talk),
        )
        yield text, bool(answer_now), judge_attention(text, PEOPLE[author], now)
        if answer_now:
            requester, talk = author, []
            requests.append(text)
            answers.extend(answer_now)
        else:
            talk.append(text)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene[1])
def test_talk_is_left_alone_and_what_means_the_agent_is_taken(scene: Scene) -> None:
    wrong = [one for one in judged(scene) if one[1] is not (one[2] is not None)]
    assert [text for text, *_ in wrong if text != KNOWN_MISTAKE] == []


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("text", lines(BY_THE_REQUESTER))
def test_the_requester_goes_on_with_the_agent(text: str) -> None:
    talk = replace(AFTER_THE_ANSWER, work="\n".join(OFFERS))
    assert judge_attention(text, PEOPLE["ann"], talk)


@pytest.mark.parametrize("text", lines(BY_OTHERS))
def test_others_may_take_up_the_work_at_any_time(text: str) -> None:
    talk = replace(AFTER_TALK, work="\n".join(OFFERS))
    assert judge_attention(text, PEOPLE["cy"], talk)


@pytest.mark.parametrize("text", lines(OF_COLLEAGUES))
def test_while_people_talk_their_requests_are_theirs(text: str) -> None:
    talk = replace(AFTER_TALK, work="\n".join(OFFERS))
    assert [judge_attention(text, PEOPLE[one], talk) for one in ("ann", "ben")] == [None, None]


def test_the_scenes_are_long_enough_to_tell() -> None:
    every = [line for scene in SCENES for line in scene[3]]
    assert sum(len(line) == 2 for line in every) >= 60
    assert sum(len(line) == 3 for line in every) >= 40


def test_right_after_an_answer_most_talk_of_others_is_left_alone() -> None:
    """The hardest place: nobody has spoken since the agent, and the words alone must tell."""
    talk = [line[1] for scene in SCENES for line in scene[3] if len(line) == 2]
    taken = [one for one in talk if judge_attention(one, PEOPLE["ben"], AFTER_THE_ANSWER)]
    assert len(taken) <= len(talk) // 10, taken


@pytest.mark.parametrize(
    "text",
    [
        "did the team like it?",
        "can you send me the deck?",
        "please approve my vacation",
        "merge my branch when CI is green",
        "update the wiki, someone",
        "who's going to tell the boss?",
        "I'd say sales were fine",
        "wow, 300 customers",
        "kannst du das Fenster zumachen?",
        "tu as vu le match ?",
        "¿has comido?",
        "ご飯食べた？",
        "誰が行く？",
        "几点开会？",
        "帮我订一份午饭",
    ],
)
@pytest.mark.parametrize("author", ["ann", "ben"])
def test_requests_among_people_are_theirs(text: str, author: str) -> None:
    assert judge_attention(text, PEOPLE[author], AFTER_TALK) is None


@pytest.mark.parametrize(
    ("text", "author", "talk", "attention"),
    [
        ("which customers are in Berlin?", "ben", AFTER_TALK, "clear"),
        ("can you forward the report to Tom?", "ben", AFTER_TALK, "unsure"),
        ("and without Berlin?", "ann", AFTER_THE_ANSWER, "clear"),
        ("find a hotel for the meeting", "ann", AFTER_THE_ANSWER, "unsure"),
        ("are you sure?", "ann", AFTER_THE_ANSWER, "unsure"),
        ("are you sure?", "ben", AFTER_THE_ANSWER, None),
        ("find a hotel for the meeting", "ben", AFTER_THE_ANSWER, None),
        ("someone should print the sales report", "ann", AFTER_THE_ANSWER, "unsure"),
    ],
)
def test_the_subject_and_the_turn_decide(
    text: str, author: str, talk: ThreadParticipants, attention: Attention | None
) -> None:
    assert judge_attention(text, PEOPLE[author], talk) == attention


def test_words_that_people_have_just_used_are_not_the_agents() -> None:
    talk = ThreadParticipants(
        participants=ALL, is_among_people=True, work=WORK, talk="are your sales as bad as mine?"
    )
    assert judge_attention("why are the sales like that?", PEOPLE["ben"], AFTER_TALK)
    assert judge_attention("why are the sales like that?", PEOPLE["ben"], talk) is None


@pytest.mark.parametrize(
    "text", ["田中さん、売上を確認して", "田中帮我看一下销售报告", "Bobさん、売上は？"]
)
def test_a_name_is_recognised_without_a_space_after_it(text: str) -> None:
    others = (Person(person_id="U2", name="田中 太郎"), Person(person_id="U3", name="Bob Smith"))
    talk = replace(AFTER_THE_ANSWER, participants=(*ALL, *others), work="売上 销售报告")
    assert judge_attention(text, PEOPLE["ann"], talk) is None


@pytest.mark.parametrize(
    ("text", "takes_up"),
    [
        ("年度開始でお願いします", True),
        ("按年度开始时间", True),
        ("お昼は12時？", False),
        ("年度開始か年度終了か", False),
        ("the start of the year", True),
    ],
)
def test_an_answer_takes_up_the_question_in_any_script(text: str, takes_up: bool) -> None:
    options = ("年度開始", "年度終了") if "開" in text else ()
    question = "年度开始时间还是结束时间? Start or end of year?"
    ask = Ask(ask_id="a", run_id="r", text=question, options=options)
    assert reads_as_answer(text, ask) is takes_up


@pytest.mark.parametrize("text", ["translate my letter", "did you look at my file?"])
def test_what_one_person_alone_asks_for_is_clear(text: str) -> None:
    alone = ThreadParticipants(participants=ALL[:1], last_requester_id="ann")
    assert judge_attention(text, PEOPLE["ann"], alone) == "clear"


@pytest.mark.parametrize(
    "text",
    [
        "lol", "haha", "thanks!", "thank you, guys", "brb, lunch", "back in 5", "I'll be back after lunch",
        "off to lunch", "hi all", "good morning", "wow", "oops, sorry", "danke", "bin gleich wieder da",
        "merci", "valeu",
    ],
)  # fmt: skip
def test_pleasantries_and_absences_answer_no_question(text: str) -> None:
    assert answers_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "yes", "no thanks", "ok, thanks", "sure", "👍", "later", "all", "the first", "back to the old one",
        "lunch", "thanks to Bob's list", "in a meeting", "maybe", "by start year", "danke, die erste",
        "la segunda, gracias",
    ],
)  # fmt: skip
def test_words_that_may_answer_a_question_are_taken(text: str) -> None:
    assert not answers_nothing(text)
