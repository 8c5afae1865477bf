"""Judges whether a message without a mention is meant for the agent or is talk among people.

In a thread with one person, messages are for the agent unless they are mere pleasantries. Colleagues ask each other for the
same kinds of things as they ask the agent, so among several people the words alone decide little. What counts is whether
the message takes up the agent's work: its subject, or the turn of the conversation.
"""

# ruff: noqa: E501, SIM905 - word lists

import re
from collections.abc import Sequence

from bots.inbound.phrases import read_consent
from core.domain.threads import Ask, Attention, Person, ThreadParticipants

CHARACTERS_READ_MAX = 600
"""The patterns here read no more of a message, so their lists of words may be long."""
_NEEDED = 3
"""How much must speak for the agent. The weights are in `_weigh`."""
_CALLS_OTHERS = 3
"""How much it speaks against the agent that a message calls other people."""
_LEAD = re.compile(
    r"(?:(?:ok(?:ay)?|great|perfect|nice|good|thanks|thank you|right|no|yes|wait|hmm?|actually|and|also|then|now|so|but|please|"
    r"pls|just|und|auch|dann|jetzt|nun|noch|aber|bitte|danke|super|gut|nein|ja|et|aussi|puis|maintenant|merci|mais|non|oui|"
    r"y|también|luego|ahora|gracias|pero|sí|e|também|depois|agora|obrigad[oa]|mas|sim|não|"
    r"s'il (?:te|vous) plaît|stp|svp)[\s,.!:;–—-]+){1,4}|[\s¿¡]+",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"\b(?:(?:can|could|would|will|won't|can't) you|thank you|(?:kannst|könntest|würdest|magst) du|"
    r"(?:können|könnten|würden) sie|(?:peux|pourrais)-tu|tu (?:peux|pourrais)|vous (?:pouvez|pourriez)|"
    r"(?:pouvez|pourriez)-vous|s'il (?:te|vous) plaît|você (?:pode|poderia))\b",
    re.IGNORECASE,
)
"""How people and the agent are asked alike, so its "you" tells nothing."""
_QUESTION = re.compile(r"[?？]|(?:吗|呢|か)[。！\s]*$|什么|怎么|多少|なぜ|どう")
_STATEMENT = re.compile(
    r"(?:(?:i|we|he|she|it|they|that|this|there|those|these|the|my|our|his|her|ich|wir|er|sie|es|das|der|die|mein\w*|"
    r"unser\w*|je|nous|on|il|elle|ce|le|la|les|mon|ma|mes|yo|el|los|las|es|mi|eu|o|os|a|as|é|meu|minha)\b|j'|c'|"
    r"我|他|她|这|那|私|僕|俺)|.*(?:です|ます|した|った|だ|よ|ね|了|的)[。！\s]*$",
    re.IGNORECASE | re.DOTALL,
)
_ASKS = re.compile(
    r"\b(?:i|we)(?:'d| would)? (?:mean|meant|need|want|like)\b|\b(?:ich|wir) (?:brauche|möchte|meine?|will)\w*|"
    r"\bje (?:veux|voudrais)|\b(?:quiero|necesito|quero|preciso)\b|ください|お願い|もらえ|ほしい|して$|请|帮|把",
    re.IGNORECASE,
)
"""Requests in the form of a statement."""
_CORRECTS = re.compile(
    r"(?:that|this|it|these|those|das|es|die|ce|c'|ça|eso|esto|no es|isso|isto)\b.*"
    r"(?:n['’]t|\b(?:not|wrong|missing|nicht|falsch|fehl\w+|pas|faux|manque|no|mal|falta\w*|não|errad[oa])\b)",
    re.IGNORECASE | re.DOTALL,
)
"""What the agent's answer gets wrong."""
_WORK = re.compile(
    r"\b(?:charts?|graphs?|plots?|axis|legend|tables?|spreadsheet|files?|csv|xlsx?|pdf|json|columns?|rows?|cells?|totals?|sum|"
    r"average|median|percent(?:age)?s?|figures?|numbers|dataset|code|query|output|paragraphs?|sentences?|headings?|headline|"
    r"title|footer|bullets?|typos?|sources?|citations?|steps?|formula|sort(?:ed)?|filter|translate|summari[sz]e|shorten|shorter|"
    r"longer|explain|calculated?|tabellen?|dateien|datei|spalten?|zeilen?|summen?|diagramm|zahlen|quellen?|kürzer|länger|"
    r"sortiere|übersetze|erkläre?|berechne|tableau|fichiers?|colonnes?|lignes?|totaux|chiffres|graphique|traduis|résume|trie|"
    r"tablas?|archivos?|columnas?|filas?|totales|cifras|gráfic[oa]|traduce|resume|ordena|"
    r"tabelas?|arquivos?|ficheiros?|colunas?|linhas?|totais|números|traduz\w*|resuma)\b|"
    r"表|グラフ|合計|列|行目|要約|翻訳|图|总计|总数|翻译|总结",
    re.IGNORECASE,
)
"""What the agent's work is made of, and is rarely in talk."""
_CONTINUES = re.compile(
    r"^(?:and|now|also|und|jetzt|auch|et|aussi|maintenant|y|ahora|e|agora)\b|"
    r"\b(?:same|again|instead|only|without|don't|other|what about|how about|nochmal|noch|stattdessen|ohne|encore|plutôt|"
    r"sans|même|otra|otro|sin|igual|mismo|outr[oa]|sem|mesm[oa])\b|もっと|もう一度|代わり|版|再|改成|换成",
    re.IGNORECASE,
)
"""Words that go on with what was said last."""
_REFERS = re.compile(
    r"\b(?:it|that|this|them|more|less|es|das|mehr|weniger|ça|plus|moins|eso|más|menos|isso|mais)\b|"
    r"不要",
    re.IGNORECASE,
)
"""In a request, words for what was said last. In a question, they may be about anything ("is it raining?")."""
_PLEASE = re.compile(
    r"\b(?:please|pls|plz|bitte|s'il|stp|svp|por favor|porfa)\b|请|麻烦|ください|お願い",
    re.IGNORECASE,
)
_PERSONAL = re.compile(
    r"\b(?:you|your|yours|you're|my|mine|our|ours|we|let's|du|dich|dir|dein\w*|ihr|mein\w*|wir|uns|"
    r"tu|te|toi|ton|tes|vous|votre|vos|mon|mes|nous|tú|ti|tus|mi|mis|você|teu|tua|meu|minha)\b|"
    r"我们|咱",
    re.IGNORECASE,
)
_CROWD = re.compile(
    r"\b(?:anyone|anybody|someone|somebody|everyone|everybody|guys|folks|y'all|he|she|his|him|jemand|leute|quelqu'un|"
    r"les gars|alguien|chicos|alguém|galera|pessoal|euch|vosotros|vocês)\b|你们|誰|みんな|皆さん|谁|大家",
    re.IGNORECASE,
)
_REPLIES = re.compile(
    r"(?:yes|yeah|yep|no|nope|nah|sure|not yet|ja|nein|klar|oui|non|sí|não|sim|はい|うん|いや|了解|好|没)(?!\w)|好的|没有",
    re.IGNORECASE,
)
_COMMON = frozenset(
    """
    about after again their there these those which where while would could other pleas thank every befor being maybe
    first today tomor yeste bitte diese nicht haben hatte werde wurde kanns könnt könne schon immer jetzt heute morge
    danke welch warum cette celui leurs notre votre avoir faire comme quand après avant depui entre quell pourq puede
    tiene hacer desde hasta sobre donde dónde cuand cuánd quien quién ahora luego favor todos podes fazer depoi agora
    obrig minha nossa porqu still until since under above below three seven eight never quite later early going gonna
    think doing gegen durch unter zwisc damit davon sechs siebe trois quatr contr toujo aussi encor alors chaqu cinco
    cuatr siemp nunca mient todav també sempr ainda
    """.split()
)
"""Words, cut like those of `_subjects`, that do not tell what a text is about."""
_SUBJECT = re.compile(
    r"[\u3400-\u9fff]+|[\u30a1-\u30fa\u30fc]{2,}|(?:(?![\u3040-\uffff])[^\W_])+(?:-\d+)?"
)
SUBJECT_LETTERS = 5
_NAMES_A_THING = re.compile(r"[^\W\d]+-?\d")
_FUNCTION_CHARACTERS = frozenset(
    "一的了是我你他她它们这那哪有没在和就也都还吗吧呢什么怎为可以个下今明"
)
_REPLIES_TO_ANYTHING = """
    ok | okay | k | kk | cool | nice | great | awesome | perfect | lovely | super | amazing | yes | no | yep | yeah |
    nope | nah | sure | right | true | same | agreed | exactly | indeed | same here | me too | will do | done | on it |
    got it | gotcha | sounds good | fine | fine with me | good | not bad | lgtm | +1 | -1 | all good | makes sense |
    i see | no idea | dunno | maybe | very much | so much | a lot | all | everyone | then | too | for now | later |
    gut | genau | ja | nein | klar | oui | non | d'accord | sí | vale | claro | sim | não | beleza
"""
"""Pleasantries that may be the answer to a question."""
_ONLY_PLEASANTRIES = """
    thanks | thank you | thx | ty | cheers | np | no problem | no worries | you're welcome | welcome | wow | lol | haha |
    hahaha | hehe | rofl | lmao | xd | hi | hello | hey | hi all | hey all | morning | good morning | good night | gn |
    gm | bye | see you | see ya | brb | afk | oh | ah | oops | sorry | my bad | yay | woohoo | ouch | hmm | hm | really |
    seriously | omg | wtf | fyi | guys | team | man | mate | folks | happy friday | danke | bitte | hallo | moin |
    servus | tschüss | bis gleich | bis morgen | merci | salut | bonjour | à demain | gracias | hola | adiós |
    hasta luego | jaja | jajaja | obrigado | obrigada | olá | oi | tchau | valeu | kkk | rsrs | de nada
"""


def _alternatives(words: str) -> re.Pattern[str]:
    """Returns a pattern for one of the words and what follows it up to the next one."""
    longest_first = sorted(words.split("|"), key=len, reverse=True)
    return re.compile(
        "(?:{})(?!\\w)[\\W_]*".format("|".join(re.escape(one.strip()) for one in longest_first)),
        re.IGNORECASE,
    )


_PLEASANTRY = _alternatives(f"{_REPLIES_TO_ANYTHING}|{_ONLY_PLEASANTRIES}")
_ONLY_PLEASANTRY = _alternatives(_ONLY_PLEASANTRIES)
_AWAY = re.compile(
    r"\W*(?:(?:i'll be |be )?(?:right )?back (?:soon|later|(?:in|at|after) (?:\d|an?\b|few|five|ten|lunch|noon))|"
    r"(?:brb|bbl|bbs|afk|gtg)\b|(?:i'm |i am )?(?:off|going) (?:to|for) (?:lunch|coffee|dinner)\b|mahlzeit\b|"
    r"(?:bin )?(?:gleich|kurz) (?:wieder da|zurück|weg)\b|(?:je )?reviens (?:dans|vite|tout)\b|ahora vuelvo\b|"
    r"já volto\b)",
    re.IGNORECASE,
)
"""Says that its author is away for a while."""
_ASIDE = re.compile(
    r"(?<!\bto )(?<!\bfor )(?<!\bwith )(?<!\bfrom )(?<!\bby )(?<!\bof )(?<!\bcc )(?<!\band )(?<![\w.])@\w",
    re.IGNORECASE,
)
"""A mention of another person, unless the person is the object of a request."""
_PREPOSITIONS = frozenset("to for with from by of cc and an für mit von à pour a para".split())
_GREETING = re.compile(
    r"(?:(?:hey|hi|hello|yo|thanks|thank you|ok|hallo|danke|salut|merci|hola|gracias|oi|olá)[\s,]+)+"
)
_IS_RIGHT = re.compile(
    r"(?: is|'s) (?:right|correct)\b| hat recht\b| a raison\b| tiene razón\b| tem razão\b"
)
"""After a name, these words are about the person and not to them."""
_AGREES = re.compile(
    r"\W*(?:yes|yeah|yep|sure|please|go|do|ja|gerne|mach|oui|vas|sí|si|sim|はい|お願い|是|好)",
    re.IGNORECASE,
)
_CJK_BEGINS = "\u3040"
_ANSWER_WORD = re.compile(r"[\u3040-\u9fff]|(?:(?![\u3040-\u9fff])\w)+")
_SHORTCODES = re.compile(r":[a-z0-9_+'-]+:")


def judge_attention(text: str, author: Person, talk: ThreadParticipants) -> Attention | None:
    """Returns how sure it is that an unaddressed message is meant for the agent, or None if it is talk among people."""
    words = _plain(text)
    others = [one for one in talk.participants if one.person_id != author.person_id]
    if _names_person(words, others):
        return None
    is_alone = not others and not talk.is_among_people
    has_turn = is_alone or (talk.last_requester_id == author.person_id and not talk.is_among_people)
    if has_turn and _AGREES.match(words) and read_consent(words):
        return "clear" if is_alone else "unsure"
    if _consists_of(words, _PLEASANTRY) or _AWAY.match(words):
        return None
    against = _evidence_of_talk(words, others, is_turn=not talk.is_among_people)
    if is_alone:
        return "unsure" if against >= _CALLS_OTHERS else "clear"
    return _weigh(words, author, talk, against)


def _weigh(words: str, author: Person, talk: ThreadParticipants, against: int) -> Attention | None:
    """Judges a message in a thread of several people, where `against` is the evidence that it is talk."""
    is_turn, is_own = not talk.is_among_people, talk.last_requester_id == author.person_id
    has_turn = is_turn and is_own
    shared, is_work = _subjects(words) & _subjects(talk.work), _WORK.search(words) is not None
    is_sure = is_work or len(shared) > 1
    corrects = has_turn and _CORRECTS.match(words)
    if _is_statement(words) and not (corrects or (is_turn and is_sure)):
        return None
    is_polite, is_question = _POLITE.search(words), _QUESTION.search(words)
    goes_on = _CONTINUES.search(words) or ((is_polite or not is_question) and _REFERS.search(words))
    if not (is_turn or is_sure or is_question or goes_on or _PLEASE.search(words)):
        return None
    in_favour = (2 if is_turn else 0) + is_own
    if shared - _subjects(talk.talk):
        in_favour += 3 + is_sure
    else:
        in_favour += 2 if is_work else bool(is_turn and goes_on)
    if not has_turn and _REPLIES.match(words):
        against += 2
    margin = 2 if has_turn or shared or is_sure else _NEEDED
    if in_favour < _NEEDED or in_favour - against < margin:
        return None
    return "clear" if not against and (is_sure or (has_turn and goes_on)) else "unsure"


def _is_statement(words: str) -> bool:
    """Whether the message neither asks a question nor asks for anything."""
    begin = _LEAD.match(words)
    is_request = _QUESTION.search(words) or _ASKS.search(words)
    return not is_request and _STATEMENT.match(words, begin.end() if begin else 0) is not None


def _evidence_of_talk(words: str, others: Sequence[Person], *, is_turn: bool) -> int:
    """Returns how much in the message speaks for other people as its readers. Right after the agent's words, "you" is
    probably the agent."""
    weight = _CALLS_OTHERS if _CROWD.search(words) or _ASIDE.search(words) else 0
    weight += _CALLS_OTHERS if _ends_with_name(words, others) else 0
    if _PERSONAL.search(_POLITE.sub(" ", words)):
        weight += 1 if is_turn else 3
    return weight


def is_talk(text: str, author: Person, talk: ThreadParticipants) -> bool:
    """Whether the words are clearly for other people, even if their author was asked a question."""
    others = [one for one in talk.participants if one.person_id != author.person_id]
    words = _plain(text)
    return _names_person(words, others) or (
        bool(others) and _evidence_of_talk(words, others, is_turn=True) >= _CALLS_OTHERS
    )


def reads_as_answer(text: str, ask: Ask) -> bool:
    """Whether the words take up the question: they name exactly one option, or share two longer words with it.

    For people who were asked and write while others are talking.
    """
    said = f" {' '.join(_answer_words(text))} "
    named = [one for one in ask.options if f" {' '.join(_answer_words(one))} " in said]
    if ask.options and named:
        return len(named) == 1
    asked = f"{ask.text} {' '.join(ask.options)}"
    words = {one for one in said.split() if len(one) >= 4} & set(_answer_words(asked))
    pairs = {one for one in _subjects(_plain(text)) & _subjects(asked) if one[0] >= _CJK_BEGINS}
    return len(words) + len(pairs) >= 2


def _answer_words(text: str) -> list[str]:
    """Returns words, and single characters of scripts that have no spaces."""
    return _ANSWER_WORD.findall(text[:CHARACTERS_READ_MAX].casefold())


def answers_nothing(text: str) -> bool:
    """Whether the words answer no question: greetings, thanks and laughter do not, nor does "back in 5"."""
    words = _plain(text)
    is_pleasantry = bool(re.search(r"\w", words)) and _consists_of(words, _ONLY_PLEASANTRY)
    return is_pleasantry or _AWAY.match(words) is not None


def _consists_of(words: str, pattern: re.Pattern[str]) -> bool:
    """Whether there are no words but those of the pattern, which may be none."""
    start = re.search(r"\w", words)
    at = start.start() if start else len(words)
    while at < len(words):
        found = pattern.match(words, at)
        if found is None:
            return False
        at = found.end()
    return True


def _plain(text: str) -> str:
    return " ".join(_SHORTCODES.sub(" ", text[:CHARACTERS_READ_MAX]).split())


def _subjects(text: str) -> set[str]:
    """Returns the beginnings of the longer words, and the pairs of ideographs, that tell what a text is about."""
    found: set[str] = set()
    for one in _SUBJECT.findall(text.casefold()):
        if "\u3400" <= one[0] <= "\u9fff":
            pairs = (one[at : at + 2] for at in range(len(one) - 1))
            found.update(pair for pair in pairs if not _FUNCTION_CHARACTERS.intersection(pair))
        elif one[0] >= "\u30a1" or len(one) >= SUBJECT_LETTERS or _NAMES_A_THING.match(one):
            found.add(one[:SUBJECT_LETTERS])
    return found - _COMMON


def _names_person(words: str, others: Sequence[Person]) -> bool:
    """Whether the message begins with an @name or with the name of a person who writes in the thread."""
    start = _GREETING.sub("", words.casefold())
    return start.startswith("@") or any(
        start.startswith(name)
        and not _is_inside_word(start, len(name))
        and not _IS_RIGHT.match(start, len(name))
        for name in _names(others)
    )


def _is_inside_word(text: str, at: int) -> bool:
    """Whether a word goes on at this place. Scripts without spaces begin a new word."""
    return text[at : at + 1].isalnum() and text[at] < _CJK_BEGINS


def _ends_with_name(words: str, others: Sequence[Person]) -> bool:
    """Whether the message ends by addressing a person by name, as in "thanks, Bob"."""
    *_, before, last = ("", "", *re.findall(r"[\w-]+", words.casefold()))
    return last in _names(others) and before not in _PREPOSITIONS


def _names(others: Sequence[Person]) -> set[str]:
    whole = {one.name.casefold() for one in others}
    return {name for name in whole | {one.partition(" ")[0] for one in whole} if name}
