"""Recognises what short messages mean: consent, refusal, a wish to stop, how the agent should follow a thread, and
commands such as "use coder" or "forget me".

A message counts only if it consists of known phrases and nothing else, so that "yes, but first ..." or "don't stop"
means nothing here. All supported languages are recognised at once, because people mix them.
"""

import re
import unicodedata
from typing import Literal, cast, get_args

from core.domain.threads import FollowMode

Meaning = Literal["yes", "no", "stop", "quiet", "mention", "follow", "filler"]
CHARACTERS_MAX = 200
"""The patterns here read no more of a message."""
BLANK = (
    " \t\n\r\v\f\x85\xa0\xad\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\u2800\u3000\u3164\ufeff"
)
"""Spaces, and invisible characters that come with copied text and with keyboards for scripts from right to left."""
_PHRASES: dict[Meaning, str] = {
    "yes": """
        yes | yeah | yep | yup | yes please | sure | sure thing | ok | okay | okey dokey | approve
        approved | i approve
        approve it | approve this | go ahead | please go ahead | go for it | do it | please do
        please do it | just do it
        proceed | please proceed | confirm | confirmed | i confirm | agreed | i agree | fine by me
        fine with me
        that's fine | it's fine | that is fine | sounds good | looks good | looks good to me | lgtm
        of course | absolutely
        definitely | by all means | ship it | granted | permission granted | allow | allowed | allow it
        i allow it
        you may | you may do it | you may do that | you may proceed | ok with me | that's ok | that's okay
        yes do it | yea | yess | ok go | you can go ahead | go ahead and do it | sounds good to me
        green light | affirmative
        ja | jo | jep | jawohl | klar | na klar | aber klar | gern | gerne | ja gerne | natürlich
        selbstverständlich
        mach | mach das | mach es | mach's | mach mal | mach ruhig | leg los | los | los geht's | nur zu
        genehmigt
        ich genehmige es | freigegeben | freigabe erteilt | einverstanden | passt | passt so | in ordnung
        geht klar
        bestätigt | ich bestätige | ich stimme zu | das ist ok | ist ok | das ist in ordnung | du darfst
        du darfst das
        alles klar | erlaubt | tu es | ausführen
        oui | ouais | d'accord | dac | vas-y | allez-y | fais-le | faites-le | bien sûr | bien sur
        approuvé | j'approuve
        validé | je valide | confirmé | je confirme | c'est bon | ça marche | ca marche | ça me va | tu peux
        tu peux y aller | vous pouvez y aller | feu vert | volontiers | je suis d'accord | autorisé | j'autorise
        c'est d'accord
        sí | si | claro | claro que sí | claro que si | por supuesto | adelante | hazlo | hágalo | dale
        vale | de acuerdo
        aprobado | apruebo | lo apruebo | confirmado | confirmo | lo confirmo | está bien | esta bien
        procede | proceda
        autorizo | autorizado | lo autorizo | estoy de acuerdo | permitido
        sim | claro que sim | pode | pode fazer | pode ir | pode sim | podes | pode prosseguir | vá em frente
        vai em frente | va em frente | faz isso | faça | faça isso | manda ver | aprovado | aprovo | tá bom
        ta bom
        está bem | tudo bem | beleza | combinado | com certeza | eu aprovo | estou de acordo | permitido
        autorizado
        はい | ええ | いいよ | いいですよ | お願いします | どうぞ | 了解 | 了解です | 了解しました | 承認
        承認します
        承認しました | 許可します | 進めて | 進めてください | やって | やってください | 実行して
        実行してください | オッケー
        是 | 是的 | 好 | 好的 | 好啊 | 可以 | 可以的 | 行 | 同意 | 我同意 | 批准 | 已批准 | 我批准 | 确认
        继续吧 | 请继续
        执行吧 | 当然 | 做吧
        👍 | ✅ | 👌 | ✔ | :+1: | :thumbsup: | :white_check_mark: | :heavy_check_mark: | :ok_hand:
    """,
    "no": """
        no | nope | nah | no way | don't | dont | do not | don't do it | don't do that | don't do this
        do not do it
        do not do that | do not do this | please don't | please do not | never | deny | denied | i deny it
        reject
        rejected | i reject it | refuse | refused | i refuse | decline | declined | no thanks | no thank you
        absolutely not | definitely not | certainly not | of course not | not allowed | not approved | forbidden
        rather not | i'd rather not | better not | hell no | no don't | i don't approve | i do not approve
        disapproved | leave it | leave that | leave it be | leave it alone | forget it | never mind
        let's not | nevermind | don't approve | do not approve | don't approve it
        nein | nee | nö | nein danke | auf keinen fall | keinesfalls | bitte nicht | mach das nicht
        mach es nicht
        mach's nicht | tu das nicht | tu es nicht | lass das | lass es | lieber nicht | besser nicht | abgelehnt
        ich lehne ab | ich lehne das ab | nicht genehmigt | nicht erlaubt | niemals | kommt nicht in frage
        verboten | ich stimme nicht zu | mach das bitte nicht | bitte mach das nicht | nicht machen
        lass es lieber | lass es bleiben | lass mal | lass lieber | vergiss es
        non | non merci | surtout pas | pas question | hors de question | ne fais pas ça | ne le fais pas
        ne faites pas ça | ne le faites pas | refusé | je refuse | rejeté | jamais | interdit
        je ne suis pas d'accord | je n'approuve pas | pas autorisé | je n'autorise pas
        certainement pas | pas d'accord | il vaut mieux pas
        laisse | laissez | laisse tomber | laissez tomber | pas la peine
        no gracias | de ninguna manera | ni hablar | no lo hagas | no lo haga | no hagas eso | no haga eso
        rechazado
        rechazo | lo rechazo | denegado | nunca | jamás | mejor no | prohibido | no estoy de acuerdo
        no apruebo | no autorizo | no lo autorizo
        no lo apruebo | claro que no | por supuesto que no | en absoluto
        déjalo | dejalo | déjelo | mejor déjalo | olvídalo | no hace falta
        não | nao | não obrigado | não obrigada | de jeito nenhum | nem pensar | não faça | não faça isso
        não faz isso
        não faças isso | rejeitado | rejeito | recusado | recuso | negado | nunca | melhor não | proibido
        não aprovo | não autorizo | claro que não | não concordo | não pode
        deixa | deixe | deixa estar | deixa para lá | deixa pra lá | esquece | esqueça | não precisa
        いいえ | いや | だめ | だめです | ダメ | ダメです | 駄目です | しないで | しないでください
        やらないで | やらないでください
        却下 | 却下します | 拒否 | 拒否します | 許可しません | 承認しません
        嫌です | お断りします | 結構です | やめておいて | やめておいてください | いりません | いらない | 必要ありません
        不 | 不行 | 不可以 | 不要 | 不同意 | 我不同意 | 拒绝 | 我拒绝 | 否 | 不批准 | 不要做 | 别做 | 不许
        反对 | 我反对 | 绝对不行 | 不用 | 不用了 | 不必 | 不必了 | 不需要 | 算了 | 别
        👎 | ❌ | 🚫 | ⛔ | :-1: | :thumbsdown: | :x: | :no_entry: | :no_entry_sign:
    """,
    "stop": """
        stop | stop it | stop this | stop that | stop now | stop right now | stop working | stop running
        stop the run
        stop the work | stop what you are doing | stop what you're doing | stop everything | can you stop
        could you stop
        would you stop | you can stop | you can stop now | cancel | cancel it | cancel this | cancel that
        cancel the run
        abort | abort it | abort this | halt | stop immediately
        stopp | anhalten | halt an | hör auf | hör auf damit | hör bitte auf | hören sie auf | aufhören | brich ab
        brich das ab
        brechen sie ab | abbrechen | stoppen | stoppe | stopp das | stopp es | kannst du aufhören
        kannst du stoppen
        arrête | arrete | arrête-toi | arrêtez | arrêtez-vous | arrête ça | arrête tout | arrêtez tout
        stoppe tout | annule
        annule ça | annulez | peux-tu arrêter | tu peux arrêter
        para | párate | detente | deténgase | detén | detén eso | deja de trabajar | alto | cancela
        cancela eso | cancélalo
        cancelar | detener | puedes parar
        pare | parar | pare com isso | pare agora | pode parar | cancele | cancele isso | interrompa
        interromper
        止めて | 止めてください | 止まって | 止まってください | やめて | やめてください | ストップ | 停止
        停止してください | 中止
        中止して | 中止してください | キャンセル
        停 | 停止吧 | 停下 | 停下来 | 请停止 | 请停下 | 别做了 | 取消 | 住手 | 停止运行
        🛑 | ✋ | :octagonal_sign:
    """,
    "quiet": """
        stay quiet | be quiet | keep quiet | quiet | go quiet | stay silent | be silent | mute | mute yourself
        stay out of this | stay out of this thread
        sei still | sei ruhig | bleib still | bleib ruhig | halt dich raus
        tais-toi | taisez-vous | reste silencieux | silence
        cállate | quédate callado | guarda silencio | silencio
        fica quieto | fique quieto | cala-te | fica em silêncio | fique em silêncio | silêncio
        静かにして | 静かにしてください | 黙って | 黙っていて | 安静 | 请安静 | 别说话
    """,
    "mention": """
        only when mentioned | only answer when mentioned | only reply when mentioned
        answer only when mentioned
        reply only when mentioned | only respond when mentioned | respond only when mentioned
        only when i mention you
        only answer when i mention you | only when we mention you | mentions only | mention only
        wait for a mention
        nur bei erwähnung | antworte nur bei erwähnung | nur wenn du erwähnt wirst | nur wenn ich dich erwähne
        antworte nur wenn du erwähnt wirst
        seulement quand on te mentionne | réponds seulement quand on te mentionne | seulement si on te mentionne
        solo cuando te mencionen | responde solo cuando te mencionen | solo si te mencionan
        só quando mencionado | responda só quando mencionado | só quando for mencionado
        メンションされたときだけ | メンションの時だけ | 只在被提及时回复 | 只有被提到时才回复
    """,
    "follow": """
        follow this thread | follow the thread | follow along | follow us | follow | you can talk again
        you may talk again | listen again | unmute | unmute yourself | join in again
        folge diesem thread | folge uns | du darfst wieder reden | du kannst wieder mitreden
        suis ce fil | suis-nous | tu peux reparler | sigue este hilo | síguenos | puedes volver a hablar
        siga este tópico | acompanhe este tópico | pode falar de novo | 会話に参加して | 继续参与
    """,
    "filler": """
        please | pls | plz | thanks | thank you | thx | ty | now | here | for now | from now on | right now
        immediately
        great | perfect | nice | cool | bot | agent | in this thread
        bitte | danke | dankeschön | danke schön | vielen dank | super | jetzt | sofort | hier | perfekt
        das reicht
        merci | s'il te plaît | s'il te plait | s'il vous plaît | s'il vous plait | stp | svp | maintenant
        ici | parfait
        por favor | gracias | muchas gracias | perfecto | ahora | aquí | ya
        obrigado | obrigada | valeu | perfeito | agora | aqui
        ください | 今すぐ | 请 | 谢谢 | 吧 | 啊 | 现在
        🙂 | 😀 | 😊 | 🎉 | 🙏 | 🚀 | :pray: | :tada: | :slightly_smiling_face: | :smile: | :rocket:
    """,
}
_CJK = r"[\u3040-\u30ff\u3400-\u9fff]"
_EMOJI = "👍✅👌✔👎❌🚫⛔🛑✋🙂😀😊🎉🙏🚀"
_TOKEN = re.compile(
    rf":[a-z0-9_+-]+:|{_CJK}|[{_EMOJI}]|(?:(?!{_CJK})\w)+(?:['-](?:(?!{_CJK})\w)+)*|[^\s\w.,;:!()~*_¡…。、！，；：]"
)
_IN_CHANNEL = re.compile(
    r"\s+(?:in (?:this|the whole|the) channel|in diesem (?:kanal|channel)|dans ce (?:canal|salon)|en este canal|"
    r"neste canal)(?=\W*$)",
    re.IGNORECASE,
)
_NEGATIONS = frozenset(
    "don't dont not never nicht niemals pas jamais nunca 不 别 要".split()  # noqa: SIM905 - a word list
)
_PUNCTUATION = re.compile(r"[.,;!…。、，！；：\n–—]+|:(?=\s)|\s-\s")
_STRUCK_OUT = re.compile(r"~[^\s~][^~]*~")
_INVISIBLE = re.compile("[\ufe0e\ufe0f\u200d\U0001f3fb-\U0001f3ff]|(?<=:):skin-tone-[2-6]:")


def _tokens(text: str) -> tuple[str, ...]:
    """Returns words, CJK characters, emoji, and other characters that carry a meaning, such as question marks."""
    plain = unicodedata.normalize("NFC", _INVISIBLE.sub("", text)).casefold().replace("’", "'")
    return tuple(_TOKEN.findall(plain))


def _index() -> dict[tuple[str, ...], Meaning]:
    return {
        _tokens(phrase): meaning
        for meaning, lines in _PHRASES.items()
        for phrase in re.split(r"\||\n", lines)
        if phrase.strip()
    }


_MEANINGS = _index()


def _meanings(text: str) -> frozenset[Meaning] | None:
    """Returns the meanings of all phrases of the text, or None if a part of it is unknown or struck out.

    No phrase reaches beyond punctuation: "No, don't do it" is not "no don't" and "do it". Without punctuation between
    them, phrases of different meanings, and a phrase after a negation ("don't forget it"), mean nothing.
    """
    if len(text) > CHARACTERS_MAX or _STRUCK_OUT.search(text):
        return None
    parts = [_part_meanings(_tokens(part)) for part in _PUNCTUATION.split(text)]
    known = [part for part in parts if part is not None and len(part) <= 1]
    return frozenset[Meaning]().union(*known) if len(known) == len(parts) else None


def _part_meanings(tokens: tuple[str, ...]) -> frozenset[Meaning] | None:
    found: set[Meaning] = set()
    at = 0
    while at < len(tokens):
        for length in range(min(_LONGEST, len(tokens) - at), 0, -1):
            if (meaning := _MEANINGS.get(tokens[at : at + length])) is not None:
                if meaning != "filler" and at and tokens[at - 1] in _NEGATIONS:
                    return None
                found.add(meaning)
                at += length
                break
        else:
            return None
    return frozenset(found - {"filler"})


_YES, _NO = frozenset[Meaning](("yes",)), frozenset[Meaning](("no",))
_REFUSALS = (_NO, frozenset[Meaning](("no", "stop")))
_LONGEST = max(len(phrase) for phrase in _MEANINGS)
_REASON = re.compile(r"\s*([^,.;:!\n–—-]{1,30})[,.;:!\n–—-]\s*([^\W\d].*)", re.DOTALL)
_NOT_SO = re.compile(
    r"(?:(?:it|that|this)(?:['’]s| is) )?too \w+|(?:das ist )?zu \w+|trop \w+|demasiado \w+|"
    r"not (?:now|today|this|that|the|on|in|at|until|before|without|here|like|so)\b|"
    r"nicht (?:jetzt|heute|hier|so|am|an|im|in|vor|ohne|dies\w{0,2})\b|"
    r"pas (?:maintenant|ici|comme|le|la|ce|cette|avant|sans)\b|no (?:ahora|hoy|aquí|así|el|la|en|antes|sin)\b|"
    r"não (?:agora|hoje|aqui|assim|na|no|antes|sem)\b",
    re.IGNORECASE,
)
_OBJECTION = re.compile(
    r"\b(?:wrong|incorrect|mistake|dangerous|risky|unsafe|bad idea|"
    r"falsch\w{0,2}|fehler|gefährlich|mauvaise?|fau(?:x|sse)|erreur|dangereu(?:x|se)|"
    r"equivocad[oa]|incorrect[oa]|peligros[oa]|errad[oa]|incorret[oa]|perigos[oa])\b|違|危険|危险|错|不对",
    re.IGNORECASE,
)
"""Reasons against something: how they begin, or what is in them. "No, it's the right file" has the same form."""
_DOUBT = re.compile(
    r"\b(?:but|wait|yes|yet|unless|problem|worries|go|run|proceed|do it|anyway|fine|good|right|ok(?:ay)?|approved?|"
    r"aber|doch|noch|moment|warte|sondern|ja|trotzdem|mach|mais|attends|oui|encore|vas|pero|espera|sí|todavía|hazlo|"
    r"adelante|mas|porém|espere|sim|ainda|faça|no|not|nothing|never|nicht|nichts|kein\w*|pas|rien|nada|não|nao)\b|"
    r"n't\b|n’t\b|[?？]|でも|但|ない|没",
    re.IGNORECASE,
)


_CONTENT_WITH_IT = re.compile(
    r"(?<!\w)(?:ok|okay|vale|(?:that|it)(?:['’]s| is) (?:ok|okay|fine)|fine|alles klar|passt(?: so)?|in ordnung|"
    r"ist ok|das ist (?:ok|in ordnung)|c['’]est bon|d['’]accord|est[áa] bien|está bem|tudo bem|t[áa] bom|beleza|"
    r"了解(?:です|しました)?|オッケー)(?!\w)|好的?",
    re.IGNORECASE,
)
_THANKS = re.compile(
    r"\b(?:thanks|thank you|thx|ty|danke\w*|vielen dank|merci|gracias|obrigad[oa]|valeu)\b|ありがとう|谢谢",
    re.IGNORECASE,
)


def _only_thanks(text: str) -> bool:
    """Whether the message says no more than "ok, thanks". That ends a talk, or declines, rather than approves."""
    return bool(_THANKS.search(text)) and _meanings(_CONTENT_WITH_IT.sub(" ", text)) == frozenset()


def read_consent(text: str) -> bool | None:
    """Returns whether the message clearly approves or clearly denies what was asked, or None if it does neither.

    A refusal may be followed by a reason that objects ("No, that is the wrong file"). Any other words after a refusal
    or after consent leave the question open.
    """
    found = _meanings(text)
    if found is not None:
        is_yes = found == _YES and not _only_thanks(text)
        return True if is_yes else False if found in _REFUSALS else None
    refused = _REASON.fullmatch(text) if len(text) <= CHARACTERS_MAX else None
    if refused is None or _meanings(refused[1]) != _NO:
        return None
    objects = _NOT_SO.match(refused[2])
    rest = refused[2][objects.end() :] if objects else refused[2]
    is_against = objects is not None or _OBJECTION.search(rest) is not None
    return False if is_against and not _DOUBT.search(rest) else None


def is_refusal_only(text: str) -> bool:
    """Whether the message refuses without giving a reason."""
    return _meanings(text) in _REFUSALS


def is_stop_wish(text: str) -> bool:
    """Whether the message says only that the agent should stop."""
    return _meanings(text) == frozenset[Meaning](("stop",))


def read_follow_mode(text: str) -> tuple[FollowMode | None, bool]:
    """Returns the follow mode that the message asks for in words, such as "stay quiet here", or None, and whether it
    asks for the whole channel."""
    if len(text) > CHARACTERS_MAX:
        return None, False
    words = _IN_CHANNEL.sub("", text)
    modes: tuple[FollowMode, ...] = ("quiet", "mention", "follow")
    found = _meanings(words)
    mode: FollowMode | None = next(
        (one for one in modes if found == frozenset[Meaning]((one,))), None
    )
    return mode, words != text


CommandName = Literal[
    "stop",
    "status",
    "files",
    "usage",
    "new",
    "forget",
    "export",
    "help",
    "knowledge",
    "plan",
    "use",
    "follow",
    "pair",
    "unpair",
    "who",
    "audit",
    "budget",
    "agents",
    "mcp",
]
_PLAN = re.compile(r"plan(?:\s+(show|stop|add\s+\S.*|(?:remove|skip)\s+\d{1,3}))?", re.IGNORECASE)
_USE = re.compile(
    r"use\s+(?!(?:this|that|these|those|it|them|both|all|either|neither|none|any|one|the|mine|yours)\b)(\S{1,64})",
    re.IGNORECASE,
)
"""No agent has the name of a pronoun: "use both" answers a question."""
_ADMIN = re.compile(
    r"pair\s+(?P<code>`?[A-HJ-NP-Z2-9]{4}-?[A-HJ-NP-Z2-9]{4}`?)|unpair\s+(?P<argument>\S{1,64})"
    r"|(?P<audit>audit)\s+(?P<count>\d{1,3})"
    r"|mcp\s+connect\s+(?P<server>\S{1,64})"
    r"|agents\s+(?P<agents>(?:versions|reset)\s+\S{1,64}|compare\s+\S{1,64}\s+\d{1,6}(?:\s+\d{1,6})?"
    r"|rollback\s+\S{1,64}\s+\d{1,6})"
    r"|budget\s+(?P<limit>(?:run|person|app|channel|workspace)\s+\S{1,20}(?:\s+(?:tokens?|dollars?|usd))?)",
    re.IGNORECASE,
)
_FOLLOW = re.compile(
    r"follow(?:\s+(?P<mode>follow|mention|quiet))?(?:\s+(?P<place>channel))?", re.IGNORECASE
)
_FORGET = re.compile(r"forget((?:\s+me)?(?:\s+yes)?)", re.IGNORECASE)
STOP_COMMAND: tuple[CommandName, str] = ("stop", "")


def parse_command(text: str) -> tuple[CommandName, str] | None:
    """Returns the command and its argument if the whole message is a command, else None."""
    words = text.strip()
    if chosen := _USE.fullmatch(words):
        return "use", chosen[1]
    if planned := _PLAN.fullmatch(words):
        return "plan", planned[1] or ""
    if admin := parse_admin_command(words):
        return admin
    if is_stop_wish(words):
        return STOP_COMMAND
    if (forgets := parse_forget_command(words)) is not None:
        return "forget", forgets
    if follows := parse_follow_command(words):
        return "follow", follows
    word = words.strip(" .!").lower()
    return (cast(CommandName, word), "") if word in get_args(CommandName) else None


def parse_admin_command(text: str) -> tuple[CommandName, str] | None:
    """Returns the admin command in `text` and its argument, or None if `text` is not an admin command."""
    found = _ADMIN.fullmatch(text.strip())
    if found is None:
        return None
    if found["code"]:
        return "pair", found["code"]
    if found["audit"]:
        return "audit", found["count"]
    if found["agents"]:
        return "agents", found["agents"].replace("`", "")
    if found["server"]:
        return "mcp", f"connect {found['server']}"
    if found["limit"]:
        return "budget", " ".join(found["limit"].split())
    return "unpair", found["argument"]


def parse_forget_command(text: str) -> str | None:
    """Returns what follows `forget` if the whole message is that command, else None."""
    found = _FORGET.fullmatch(text.strip(" .!"))
    return " ".join((found[1] or "").lower().split()) if found else None


def parse_follow_command(text: str) -> str | None:
    """Returns the follow mode that the message sets, followed by " channel" if it is for the whole channel, or None.

    The message is a command ("follow mention"), or says the same in words ("stay quiet here").
    """
    found = _FOLLOW.fullmatch(text.strip())
    if found is not None:
        mode = found["mode"] or "follow"
        return f"{mode.lower()} {(found['place'] or '').lower()}".strip()
    mode, is_whole_channel = read_follow_mode(text)
    return mode and (f"{mode} channel" if is_whole_channel else mode)
