"""Judges whether a message without a mention is meant for the agent or is talk among people.

In a thread with one person, messages are for the agent unless they are mere pleasantries. Among several people a message must
read like a request, and needs more evidence while they are talking to each other.
"""

# ruff: noqa: E501 - word lists

import re
from collections.abc import Sequence

from bots.inbound.phrases import read_consent
from core.domain.threads import Ask, Attention, Person, ThreadParticipants

CHARACTERS_READ_MAX = 600
"""The patterns here read no more of a message, so their lists of words may be long."""


# Verbs that begin a request for work, in the imperative or after "can you".
_VERBS = (
    "add|adjust|align|analyse|analyze|append|apply|archive|calculate|change|chart|check|clean|colou?r|combine|commit|compare|"
    "compile|compute|continue|convert|correct|count|crop|debug|delete|deploy|describe|double-?check|download|draft|draw|"
    "exclude|expand|explain|export|extend|extract|fetch|filter|find|fix|format|generate|give|group|highlight|ignore|"
    "implement|improve|include|increase|insert|install|investigate|keep|label|limit|list|look|lower|make|merge|open|outline|"
    "parse|plot|post|print|proofread|publish|put|read|redo|refactor|remove|rename|reorder|repeat|rephrase|replace|rerun|"
    "research|resize|restart|retry|revert|review|rewrite|round|run|save|search|send|set|shorten|show|simplify|skip|sort|"
    "split|start|subtract|sum|summari[sz]e|swap|tell|test|translate|try|turn|undo|update|upload|use|verify|visuali[sz]e|"
    "write|leave out|drop the|drop column|go on|carry on|limit it|figure out|work out|pick the|break it down|walk me|"
    "let me know|forget (?:the|point|that)|do (?:the same|it|that|this) (?:for|with|again|in|as)|double check|"
    # German
    "ändere|ersetze|erkläre|erklär|erstelle|exportiere|fass|fasse|filtere|finde|formatiere|füge|gib|korrigiere|kürze|"
    "lass|lösche|mach|mache|nimm|prüfe|rechne|schau|schick|schicke|schreib|schreibe|sende|setz|setze|sortiere|such|suche|"
    "übersetze|übersetz|vergleiche|verwende|wiederhole|zeig|zeige|benutze|berechne|entferne|ergänze|bitte|zeichne|versuch|"
    # French
    "ajoute|ajoutez|analyse|calcule|change|changez|compare|continue|convertis|corrige|crée|donne|enlève|envoie|envoyez|"
    "explique|exporte|fais|faites|filtre|mets|mettez|montre|montrez|réessaie|refais|remplace|résume|supprime|traduis|trie|"
    "trouve|utilise|vérifie|écris|"
    # Spanish
    "agrega|añade|analiza|busca|calcula|cambia|compara|continúa|convierte|corrige|crea|dame|elimina|envía|escribe|explica|"
    "exporta|filtra|haz|hazlo|incluye|intenta|muestra|ordena|pon|quita|reemplaza|resume|revisa|traduce|usa|utiliza|"
    # Portuguese
    "acrescenta|acrescente|adiciona|adicione|analise|calcule|compare|continue|converta|corrija|crie|dá|dê|envie|escreva|"
    "explique|exporte|faça|faz|filtre|inclua|mostra|mostre|muda|mude|ordene|procure|põe|ponha|remove|remova|resuma|"
    "substitua|tenta|tente|traduz|traduza|tira|tire|use"
)
_LEAD = (
    r"(?:(?:ok(?:ay)?|great|perfect|nice|good|thanks|thank you|thx|cool|right|no|nope|yes|wait|hmm|hm|actually|and|also|"
    r"then|now|next|so|but|please|pls|just|instead|finally|first|again|one more thing|maybe|to be clear|"
    r"und|auch|dann|jetzt|nun|noch|aber|bitte|danke|super|gut|nein|ja|doch|et|aussi|puis|maintenant|merci|mais|non|oui|"
    r"y|también|luego|ahora|gracias|pero|sí|por favor|e|também|depois|agora|obrigado|obrigada|mas|sim|não|"
    r"s'il te plaît|s'il vous plaît|stp|svp)[\s,.!:;–—-]+){0,4}"
)
_IMPERATIVE = re.compile(rf"{_LEAD}(?:don't |do not |never |not )?(?:{_VERBS})\b", re.IGNORECASE)
_CAN_YOU = re.compile(
    rf"{_LEAD}(?:can|could|would|will|won't|can't) you (?:also |please |now |just |maybe |quickly |then |instead )*(?:{_VERBS})\b|"
    r"(?:kannst du|könntest du|können sie|könnten sie|würdest du|peux-tu|pourrais-tu|tu peux|vous pouvez|pouvez-vous|"
    r"pourriez-vous|puedes|podrías|puede|podría|pode|podes|poderia|você pode|consegue)\b.+",
    re.IGNORECASE | re.DOTALL,
)
_FOLLOW_UP = re.compile(
    rf"{_LEAD}(?:what about|how about|same (?:for|with|again)|the same|one more thing|in addition|what did we (?:decide|agree|say|discuss)|"
    r"also\b|instead\b|try again|again please|shorter|longer|bigger|smaller|simpler|more detail|more details|less detail|"
    r"i meant|i mean\b|i need|i want|i would like|i'd like|we need|we want|that's wrong|that is wrong|that's not what|"
    r"this is wrong|not what i|without\b|only the|as (?:a |an )?(?:table|csv|pdf|list|chart|file|json|spreadsheet)|"
    r"in (?:german|english|french|spanish|portuguese|japanese|chinese|italian|euros?|eur|usd|percent)|"
    r"wie sieht es mit|was ist mit|nochmal|noch einmal|kürzer|länger|auf (?:deutsch|englisch)|als (?:tabelle|csv|pdf)|"
    r"et pour|plus court|plus long|en (?:anglais|français|allemand)|y (?:para|qué)|más corto|más largo|"
    r"en (?:inglés|español)|e (?:para|quanto)|mais curto|em (?:inglês|português))\b|and (?:for|the|in|with)\b|und\b|and$",
    re.IGNORECASE,
)
_WORK = re.compile(
    r"\b(?:chart|graph|plot|axis|legend|table|spreadsheet|file|files|csv|xlsx?|pdf|json|sql|column|columns|row|rows|cell|"
    r"report|summary|total|totals|sum|average|median|percent|percentages?|figure|figures|number|numbers|data|dataset|code|"
    r"script|function|stack ?trace|regex|query|output|result|results|draft|paragraph|sentence|heading|headline|"
    r"title|footer|header|font|slide|slides|section|bullet|bullets|typo|typos|link|links|source|sources|citation|step|"
    r"steps|version|page \d|point \d|screenshot|log file|attachment|attached|formula|vat|tax|currency|calculate|calculated|"
    r"tabelle|datei|dateien|spalte|zeile|zeilen|bericht|zusammenfassung|summe|summen|diagramm|zahlen|daten|quelle|quellen|"
    r"tableau|fichier|fichiers|colonne|ligne|lignes|rapport|résumé|chiffres|données|graphique|"
    r"tabla|archivo|archivos|columna|fila|filas|informe|resumen|cifras|datos|gráfico|fuente|"
    r"tabela|arquivo|ficheiro|coluna|linha|linhas|relatório|resumo|números|dados|fonte)\b",
    re.IGNORECASE,
)
_ABOUT_WORK = re.compile(
    r"(?:why|how|what|which|where|when|who)\b.*\b(?:did you|do you|have you|you (?:use|find|get|count|change|take)|"
    r"is that|is this|are those|are these|does (?:that|this|it)|is it|was it)\b|"
    r"(?:is|are|was|does|did|do|has|have) (?:that|this|it|these|those|you)\b|(?:warum|wie|was|welche|woher) hast du\b|"
    r"(?:warum|wieso|was|wie) ist (?:das|die|der)\b|pourquoi\b|comment as-tu\b|por qué\b|cómo\b|por que\b|como você\b",
    re.IGNORECASE | re.DOTALL,
)
_DEFECT = re.compile(
    r"\b(?:missing|wrong|empty|incorrect|should be|should have|doesn't|does not|isn't|is not|aren't|too (?:long|short|small|"
    r"big|wide|narrow)|falsch|fehlt|fehlen|leer|faux|manque|vide|mal|falta|faltan|vacío|errado|vazio)\b",
    re.IGNORECASE,
)
_SHORT_QUESTION = re.compile(
    r"(?:why|how|how so|why not|which one|which ones|from where|since when|where|warum|wieso|woher|pourquoi|comment|por qué|por quê)"
    r"\s*\?+",
    re.IGNORECASE,
)
_TO_PEOPLE = re.compile(
    r"\b(?:anyone|anybody|someone|somebody|everyone|everybody|guys|folks|team|y'all|all of you|you two|you both|who wants|"
    r"who's|who is|who has|who can|who broke|who took|let's|shall we|should we|we should|we could|we're|we are|we were|"
    r"we went|we have to|we'll|he|she|his|her|him|jemand|leute|alle|wer|wollen wir|lass uns|lasst uns|sollen wir|wir|"
    r"quelqu'un|tout le monde|les gars|on va|on y va|allons|qui|alguien|chicos|vamos|quién|nosotros|alguém|galera|gente|"
    r"pessoal|quem|bora)\b",
    re.IGNORECASE,
)
_SOCIAL = re.compile(
    r"\b(?:lunch|dinner|breakfast|coffee|tea|beer|beers|pizza|thai|sushi|burger|sandwich|hungry|cake|snack|restaurant|pub|"
    r"bar tonight|weekend|weather|rain|raining|sunny|holiday|holidays|vacation|birthday|party|concert|movie|film|game|match|"
    r"football|soccer|goal|team won|gym|kid|kids|son|daughter|wife|husband|baby|dog|cat|sick|doctor|dentist|train|bus|"
    r"traffic|bike|parking|home|tonight|tomorrow|monday|tuesday|wednesday|thursday|friday|saturday|sunday|morning all|"
    r"standup|stand-up|meeting|call at|shift|on call|boss|manager|hr|office|desk|room \d+|kitchen|elevator|jealous|"
    r"congrats|congratulations|welcome back|get well|see you|see ya|cheers|bye|brb|afk|omw|back in|running late|i'm late|"
    r"mittag|mittagessen|kaffee|bier|wochenende|wetter|urlaub|feierabend|geburtstag|spiel|heute abend|morgen|büro|kantine|"
    r"déjeuner|café|bière|week-end|météo|vacances|anniversaire|ce soir|demain|bureau|"
    r"almuerzo|comer|cerveza|fin de semana|clima|vacaciones|cumpleaños|partido|esta noche|mañana|oficina|"
    r"almoço|almoçar|cerveja|fim de semana|férias|aniversário|jogo|hoje à noite|amanhã|escritório)\b",
    re.IGNORECASE,
)
_IDIOM = re.compile(
    r"tell me about it|count (?:me|us|them) in|give me a (?:break|sec|second|minute|call|ring|shout)|keep (?:me|us|in|it up|calm)|look who|show off|"
    r"\w+[.!]*$|read the (?:news|room)|swap (?:shifts|places)|take (?:care|it easy)|make sense|check it out|save me|"
    r"(?:can|could) you (?:swap|take|save|put in|post) (?:me|my|shifts)",
    re.IGNORECASE,
)
_ONE_WORD_REQUEST = re.compile(
    r"(?:continue|retry|repeat|shorten|summari[sz]e|proceed|weiter|nochmal|continua|continúa|continue[rz]?)\W*",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(
    r"(?:i'm|i am|i'll|i will|i can|i was|i've|i have|i had|i think|i guess|i hope|i love|i hate|i just|i also|i'd rather|"
    r"i got|i get|i took|i pushed|i saw|i heard|i know|i don't|me too|me neither|me\b|my |mine|not me|same here|"
    r"ich bin|ich hab|ich habe|ich komme|ich war|ich glaube|ich auch|mein|meine|je suis|j'ai|je vais|je pense|moi|mon |ma |"
    r"estoy|tengo|voy|creo que|yo |mi |estou|tenho|vou|acho que|eu |meu |minha )",
    re.IGNORECASE,
)
_TO_ONE_PERSON = re.compile(
    r"(?:are|were|will|have|did|do|can|could|would) you (?:coming|going|around|free|there|in\b|ok|okay|well|join|joining|"
    r"busy|see|watch|hear|like|enjoy|had|have|been|ready|still|cover|bring|pick|call|come|meet|want|get my|got|talk|ask)|"
    r"how (?:are|was|were|is) (?:you|your)\b|your (?:turn|place|weekend|mail|email|pr\b|desk|kid|dog|car|mom|family)|"
    r"kommst du|bist du|hast du (?:zeit|lust|meine|schon)|wie geht|tu viens|tu es|ça va|vienes|estás|cómo estás|"
    r"você vem|tudo bem\?",
    re.IGNORECASE,
)
_PLEASANTRIES = """
    thanks | thank you | thx | ty | cheers | np | no problem | no worries | you're welcome | welcome |
    ok | okay | k | kk | cool | nice | great | awesome | perfect | lovely | super | amazing | wow | lol
    | haha | hahaha | hehe | rofl | lmao | xd | hi | hello | hey | hi all | hey all | morning | good
    morning | good night | gn | gm | bye | later | see you | see ya | brb | afk | yes | no | yep | yeah
    | nope | nah | sure | right | true | same | agreed | exactly | indeed | same here | me too | will do
    | done | on it | got it | gotcha | sounds good | fine | fine with me | good | not bad | oh | ah |
    oops | sorry | my bad | yay | woohoo | ouch | hmm | hm | really | seriously | omg | wtf | fyi | lgtm
    | +1 | -1 | all good | makes sense | i see | no idea | dunno | maybe | very much | so much | a lot |
    all | everyone | guys | team | then | too | for now | man | mate | folks | happy friday | danke |
    bitte | gut | genau | ja | nein | klar | hallo | moin | servus | tschüss | bis gleich | bis morgen |
    merci | oui | non | salut | bonjour | d'accord | à demain | gracias | hola | sí | vale | adiós |
    hasta luego | claro | jaja | jajaja | obrigado | obrigada | olá | oi | sim | não | tchau | valeu |
    kkk | rsrs | beleza | de nada
"""
_PLEASANTRY = re.compile(
    "(?:{})(?!\\w)[\\W_]*".format(
        "|".join(
            sorted(
                (re.escape(one.strip()) for one in _PLEASANTRIES.split("|")), key=len, reverse=True
            )
        )
    ),
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"(?<!\bto )(?<!\bfor )(?<!\bwith )(?<!\bfrom )(?<!\bby )(?<!\bof )(?<!\bcc )(?<!\band )(?<![\w.])@\w",
    re.IGNORECASE,
)
"""A mention of another person, unless the person is the object of a request."""
_PREPOSITIONS = frozenset(
    {
        "to",
        "for",
        "with",
        "from",
        "by",
        "of",
        "cc",
        "and",
        "an",
        "für",
        "mit",
        "von",
        "à",
        "pour",
        "a",
        "para",
    }
)
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
    if _is_pleasantry(words):
        return None
    score = _request_score(words, others)
    if is_alone:
        return "clear" if score >= 0 else "unsure"
    if score < (2 if talk.is_among_people else 1):
        return None
    return "clear" if score > 1 else "unsure"


def is_talk(text: str, author: Person, talk: ThreadParticipants) -> bool:
    """Whether the words are clearly for other people, even if their author was asked a question."""
    others = [one for one in talk.participants if one.person_id != author.person_id]
    words = _plain(text)
    return _names_person(words, others) or (bool(others) and _request_score(words, others) < -1)


def reads_as_answer(text: str, ask: Ask) -> bool:
    """Whether the words take up the question: they name exactly one option, or share two longer words with it.

    For people who were asked and write while others are talking.
    """
    said = f" {' '.join(_answer_words(text))} "
    named = [one for one in ask.options if f" {' '.join(_answer_words(one))} " in said]
    if ask.options and named:
        return len(named) == 1
    shared = set(said.split()) & set(_answer_words(f"{ask.text} {' '.join(ask.options)}"))
    return sum(len(one) >= 4 for one in shared) >= 2


def _answer_words(text: str) -> list[str]:
    return re.findall(r"\w+", text[:CHARACTERS_READ_MAX].casefold())


def _is_pleasantry(words: str) -> bool:
    """Whether the message consists of thanks, greetings, laughter and the like, or of emoji."""
    start = re.search(r"\w", words)
    at = start.start() if start else len(words)
    while at < len(words):
        found = _PLEASANTRY.match(words, at)
        if found is None:
            return False
        at = found.end()
    return True


def _plain(text: str) -> str:
    return " ".join(_SHORTCODES.sub(" ", text[:CHARACTERS_READ_MAX]).split())


def _request_score(words: str, others: Sequence[Person] = ()) -> int:
    """Returns a number that is higher the more the words read like a request to the agent."""
    is_request = bool(_IMPERATIVE.match(words) or _CAN_YOU.match(words) or _FOLLOW_UP.match(words))
    if _IDIOM.fullmatch(words) or (_IDIOM.match(words) and not _WORK.search(words)):
        is_request = bool(_ONE_WORD_REQUEST.fullmatch(words))
    is_question, is_about_work = "?" in words or "？" in words, bool(_WORK.search(words))
    score = 3 if is_request else 0
    if is_about_work:
        score += 2 if is_question or _DEFECT.search(words) else 1
    if is_question and (_ABOUT_WORK.match(words) or _SHORT_QUESTION.fullmatch(words)):
        score += 1
    against = (_SOCIAL.search(words), _TO_PEOPLE.search(words), _TO_ONE_PERSON.search(words))
    score -= 3 * sum(one is not None for one in against)
    if not is_request and _FIRST_PERSON.match(words):
        score -= 3
    return score - (3 if _ASIDE.search(words) or _ends_with_name(words, others) else 0)


def _names_person(words: str, others: Sequence[Person]) -> bool:
    """Whether the message begins with an @name or with the name of a person who writes in the thread."""
    start = _GREETING.sub("", words.casefold())
    return start.startswith("@") or any(
        start.startswith(name)
        and not start[len(name) : len(name) + 1].isalnum()
        and not _IS_RIGHT.match(start, len(name))
        for name in _names(others)
    )


def _ends_with_name(words: str, others: Sequence[Person]) -> bool:
    """Whether the message ends by addressing a person by name, as in "thanks, Bob"."""
    *_, before, last = ("", "", *re.findall(r"[\w-]+", words.casefold()))
    return last in _names(others) and before not in _PREPOSITIONS


def _names(others: Sequence[Person]) -> set[str]:
    whole = {one.name.casefold() for one in others}
    return {name for name in whole | {one.partition(" ")[0] for one in whole} if name}
