"""Threads of three people and the agent, line by line: what is talk among the people, and what means the agent.

Each scene opens with a request that mentions the agent and its answer.  A line is (author, text) for talk, and
(author, text, answer) for a line that means the agent, with the answer that the agent then gives.
"""

# ruff: noqa: E501 - people write long lines

Line = tuple[str, str] | tuple[str, str, str]
Scene = tuple[str, str, str, list[Line]]
SCENES: list[Scene] = [
    # 0 en
    (
        "ann",
        "make me an overview of our sales per month for 2024",
        "Here are the sales per month for 2024: January 12,400, February 11,900, March 15,020. The total is 39,320 euros.",
        [
            ("ann", "now as a table", "| Month | Sales |\n| January | 12,400 |"),
            (
                "ann",
                "why is the total lower than last year?",
                "The total is lower because two big customers left in February.",
            ),
            ("ben", "can you check if the kitchen has oat milk"),
            ("cy", "nope, all gone. can someone order more?"),
            ("ben", "I'll do it after standup"),
            ("ann", "send me the invite for Friday's retro pls"),
            ("ben", "which calendar should I use?"),
            ("cy", "what were the sales in April?", "April had sales of 14,800 euros."),
            ("cy", "and May?", "May: 15,300 euros."),
            ("ann", "Ben, did the build go green for you?"),
            ("ben", "not yet, let me rerun it"),
        ],
    ),
    # 1 en
    (
        "ben",
        "read the customer survey and list the main complaints",
        "The three main complaints in the survey are: slow delivery, missing invoices and the login page that times out.",
        [
            (
                "ben",
                "how many people complained about delivery?",
                "41 of 120 people complained about slow delivery.",
            ),
            ("ben", "put that into a bar chart", "Here is the chart of the complaints."),
            ("ann", "put my name down for the offsite"),
            ("cy", "could you review my PR after lunch"),
            ("ann", "sure, which one? the login one?"),
            ("cy", "yes, the one from yesterday"),
            ("ben", "ship it whenever"),
            ("ann", "which version are you on?"),
            (
                "cy",
                "can you also list the smaller complaints from the survey?",
                "Smaller complaints: dark mode, fonts, e-mails.",
            ),
            ("ann", "I'll update the ticket later"),
            ("cy", "write it down somewhere so we don't forget"),
        ],
    ),
    # 2 de
    (
        "ann",
        "fass bitte das Protokoll der Vorstandssitzung zusammen",
        "Die Vorstandssitzung hat drei Beschlüsse gefasst: das Budget für 2025, die neue Stelle im Vertrieb und der Umzug im Mai.",
        [
            ("ann", "und jetzt als Tabelle", "| Beschluss | Wer |\n| Budget | Vorstand |"),
            (
                "ann",
                "schreib noch dazu, wer zuständig ist",
                "Zuständig sind Frau Kern (Budget) und Herr Lodi (Umzug).",
            ),
            ("ben", "kannst du mal schauen, ob der Beamer frei ist?"),
            ("cy", "ist frei, hab ihn dir gebucht"),
            ("ben", "super, schick mir bitte die Einladung"),
            ("cy", "mach ich nach dem Mittagessen"),
            ("ben", "wer kommt eigentlich alles mit zum Italiener?"),
            (
                "ann",
                "wann genau ist laut Protokoll der Umzug?",
                "Der Umzug ist laut Protokoll am 12. Mai.",
            ),
            ("cy", "läuft der Build bei euch auch nicht?"),
            ("ben", "prüf mal deine VPN-Verbindung"),
        ],
    ),
    # 3 de
    (
        "cy",
        "suche die drei günstigsten Anbieter für Laptops heraus",
        "Die drei günstigsten Anbieter sind Notebooks24 (649 Euro), Lapstore (689 Euro) und Cyberport (705 Euro), jeweils mit 16 GB.",
        [
            (
                "cy",
                "was kostet der Versand?",
                "Der Versand kostet bei allen drei Anbietern 5 Euro.",
            ),
            ("cy", "und mit 32 GB?", "Mit 32 GB: 749, 799 und 810 Euro."),
            ("ann", "trag mich bitte für den Workshop ein"),
            ("ben", "hast du das Ticket schon aktualisiert?"),
            ("ann", "nein, mache ich morgen früh"),
            ("ben", "schreibst du dem Kunden oder soll ich?"),
            ("ann", "schreib du ihm, ich kenne ihn kaum"),
            ("ben", "nimm bei den Anbietern bitte noch Dell dazu", "Dell: 720 Euro mit 16 GB."),
            ("cy", "welche Version habt ihr gerade installiert?"),
        ],
    ),
    # 4 fr
    (
        "ann",
        "résume le contrat avec notre fournisseur Lumen",
        "Le contrat avec Lumen dure deux ans, le prix est de 4 000 euros par mois et le préavis de résiliation est de trois mois.",
        [
            ("ann", "traduis le résumé en anglais", "The contract with Lumen lasts two years."),
            ("ann", "et la date de fin ?", "Le contrat prend fin le 31 mars 2026."),
            ("ben", "tu peux vérifier s'il reste du café ?"),
            ("cy", "il n'y en a plus, qui va en acheter ?"),
            ("ben", "envoie-moi l'invitation pour vendredi stp"),
            ("cy", "je mets à jour le ticket ce soir"),
            (
                "ben",
                "quel est le préavis exact dans le contrat ?",
                "Le préavis exact est de 90 jours.",
            ),
            ("ann", "Cy, tu peux relire ma PR après le déjeuner ?"),
            ("cy", "oui, envoie le lien"),
        ],
    ),
    # 5 fr
    (
        "ben",
        "fais la liste des factures impayées",
        "Il y a quatre factures impayées : Dupont (1 200 €), Morel (830 €), Petit (410 €) et Garnier (95 €).",
        [
            (
                "ben",
                "ajoute les totaux et envoie-la en csv",
                "Voici le fichier csv avec le total de 2 535 €.",
            ),
            ("ann", "depuis quand Morel n'a pas payé ?", "Morel n'a pas payé depuis le 3 février."),
            ("cy", "inscris-moi pour le séminaire"),
            ("ben", "tu as quelle version, toi ?"),
            ("cy", "la dernière, je crois. regarde dans les réglages"),
            ("ann", "vous avez fini la réunion ?"),
        ],
    ),
    # 6 es
    (
        "ann",
        "compara los precios de los hoteles en Sevilla para el congreso",
        "Los hoteles más baratos en Sevilla son: Hotel Sol (80 euros), Hotel Giralda (95 euros) y Hotel Triana (110 euros).",
        [
            ("ann", "¿y con desayuno?", "Con desayuno: 92, 107 y 125 euros."),
            ("ann", "ponlo en una tabla", "| Hotel | Precio |"),
            ("ben", "¿puedes mirar si queda leche en la cocina?"),
            ("cy", "no queda, voy a comprar luego"),
            ("ben", "mándame la invitación del viernes porfa"),
            ("cy", "¿a qué hora era?"),
            (
                "cy",
                "¿cuál de los hoteles está más cerca del congreso?",
                "El Hotel Giralda está más cerca del congreso.",
            ),
            ("ann", "Ben, revisa mi PR cuando puedas"),
        ],
    ),
    # 7 pt
    (
        "cy",
        "faz um resumo do relatório de vendas de março",
        "O relatório de vendas de março mostra um aumento de 12 %: a região Norte vendeu 40 mil e a região Sul 28 mil.",
        [
            ("cy", "e em abril?", "Em abril as vendas subiram 3 %."),
            ("cy", "adiciona os totais por região", "Totais por região: Norte 83 mil, Sul 57 mil."),
            ("ann", "podes ver se a sala de reuniões está livre?"),
            ("ben", "está ocupada até às três"),
            ("ann", "manda-me o convite para sexta, por favor"),
            ("ben", "qual é a versão que estás a usar?"),
            (
                "ann",
                "porque é que a região Sul vendeu menos em março?",
                "A região Sul perdeu um cliente grande em março.",
            ),
            ("ben", "depois atualizo o ticket"),
        ],
    ),
    # 8 ja
    (
        "ann",
        "先月の売上レポートを要約してください",
        "先月の売上は1200万円で、前年より8%増えました。東京支店が最も多く、大阪支店は減少しました。",
        [
            ("ann", "表にしてください", "| 支店 | 売上 |\n| 東京 | 700万円 |"),
            ("ann", "大阪はなぜ減ったの？", "大阪は大口顧客の解約により減少しました。"),
            ("ben", "会議室の予約を確認してもらえる？"),
            ("cy", "もう取ってあるよ"),
            ("ben", "金曜の招待を送ってください"),
            ("cy", "あとでチケットを更新しておくね"),
            ("ben", "名古屋支店の売上も教えて", "名古屋支店の売上は180万円です。"),
            ("ann", "お昼のあとでPRを見てもらえますか"),
            ("cy", "了解、リンクを送って"),
        ],
    ),
    # 9 zh
    (
        "ben",
        "帮我整理一下客户反馈的主要问题",
        "客户反馈的主要问题有三个：物流太慢、发票缺失、登录页面经常超时。",
        [
            ("ben", "做成表格", "| 问题 | 数量 |\n| 物流 | 41 |"),
            ("ben", "为什么物流的投诉最多？", "因为三月更换了物流公司，配送时间变长。"),
            ("ann", "你能看一下厨房还有没有牛奶吗"),
            ("cy", "没有了，谁去买一点？"),
            ("ann", "把周五会议的邀请发给我"),
            ("cy", "好的，我晚点更新工单"),
            ("cy", "发票的问题再详细说一下", "发票缺失主要出现在企业客户中。"),
            ("ann", "你们用的是哪个版本？"),
            ("ben", "午饭后帮我看一下PR吧"),
        ],
    ),
    # 10 en
    (
        "ann",
        "find out why the nightly backup failed",
        "The nightly backup failed because the disk of db-2 was full: 98% used by old log files under /var/log/postgres.",
        [
            ("ann", "how big are those log files?", "The log files are 212 GB in all."),
            (
                "ben",
                "can you delete the log files older than 30 days?",
                "I deleted 180 GB of old log files.",
            ),
            ("cy", "are you coming to the pub later?"),
            ("ben", "probably, who else is going?"),
            ("cy", "ask Maria, she has the list"),
            ("ann", "can you cover my shift on Sunday?"),
            ("ben", "let me check with my wife first"),
            ("cy", "please fix the coffee machine, somebody"),
            (
                "ann",
                "is db-2 healthy again after the cleanup?",
                "Yes, db-2 uses 31% of its disk now.",
            ),
            ("ann", "run the backup again", "The backup has run and is complete."),
            ("ben", "did you file the expense report?"),
            ("cy", "show me how you did that config thing sometime"),
        ],
    ),
    # 11 en
    (
        "cy",
        "draft a blog post about our new search feature",
        "Draft: 'Find anything in seconds'. Our new search feature looks through documents, tickets and chats at once ...",
        [
            ("cy", "make it shorter", "Short draft: 'Find anything in seconds' ..."),
            ("cy", "and less formal please", "Draft: 'Lost a file? Not any more' ..."),
            (
                "ann",
                "can you translate that draft into Spanish?",
                "Borrador: 'Encuentra cualquier cosa en segundos'.",
            ),
            ("ben", "what's the wifi password in the new office?"),
            ("ann", "look it up in the handbook, page two"),
            ("ben", "can you generate a badge for my guest?"),
            ("cy", "create a channel for the summer party maybe"),
            ("ann", "summarize what I missed yesterday, anyone?"),
            ("ben", "nothing much, Tom changed the roadmap again"),
            ("ann", "change the desk booking to Tuesday then"),
            ("ben", "the search demo on Thursday, are you presenting it?"),
        ],
    ),
    # 12 de
    (
        "ben",
        "übersetze die Preisliste ins Englische",
        "Price list: Basic 9 euros, Team 29 euros, Enterprise on request. All prices are per user and month.",
        [
            (
                "ben",
                "jetzt bitte auch auf Französisch",
                "Liste de prix : Basic 9 euros, Team 29 euros.",
            ),
            ("ben", "schick es mir als pdf", "Hier ist die Preisliste als PDF."),
            ("ann", "erstell doch mal eine Umfrage fürs Sommerfest"),
            ("cy", "such dir einen Termin aus, mir ist alles recht"),
            ("ann", "könntest du heute die Kasse machen?"),
            ("cy", "ja, aber zeig mir vorher, wie das geht"),
            (
                "ann",
                "füge der Preisliste noch den Rabatt für Schulen hinzu",
                "Ich habe den Rabatt für Schulen ergänzt.",
            ),
            ("ben", "wie war dein Urlaub?"),
        ],
    ),
    # 13 ja
    (
        "cy",
        "新しい料金プランについてお客様へのメールを書いて",
        "件名：新しい料金プランのご案内。いつもご利用ありがとうございます。四月から料金プランが変わります。",
        [
            ("cy", "もっと短くして", "件名：料金プラン変更のお知らせ。四月から変わります。"),
            ("cy", "英語版もお願い", "Subject: Our new pricing plans."),
            ("ann", "今日のランチどこに行く？"),
            ("ben", "駅前の新しい店を調べてみて"),
            ("ann", "資料を印刷しておいてくれる？"),
            ("ben", "どのバージョンを使ってる？"),
            ("ann", "料金プランのメールに問い合わせ先も追加して", "問い合わせ先を追加しました。"),
        ],
    ),
    # 14 zh
    (
        "ann",
        "查一下服务器昨晚为什么宕机",
        "服务器昨晚宕机是因为内存不足，数据库进程占用了95%的内存。",
        [
            ("ann", "现在内存够吗？", "现在内存使用率是40%。"),
            ("ann", "写一份事故报告", "事故报告：昨晚服务器因内存不足宕机。"),
            ("ben", "中午吃什么？"),
            ("cy", "随便，你帮我订一份吧"),
            ("ben", "麻烦把门关一下"),
            ("cy", "你更新文档了吗？"),
            ("ben", "事故报告里加上数据库的版本", "已经加上数据库的版本。"),
        ],
    ),
    # 15 es/pt
    (
        "ben",
        "traduce el manual de instalación al español",
        "Manual de instalación: 1. Descargue el paquete. 2. Ejecute el instalador. 3. Reinicie el servidor.",
        [
            ("ben", "añade una sección sobre requisitos", "Requisitos: 8 GB de memoria y Linux."),
            ("ben", "hazlo más corto", "Manual corto: descargar, instalar, reiniciar."),
            ("ann", "¿quién organiza la cena de equipo?"),
            ("cy", "busca tú un restaurante, yo invito a la gente"),
            ("ann", "¿me apuntas para el curso de mañana?"),
            (
                "cy",
                "¿qué dice el manual sobre reiniciar el servidor?",
                "El manual dice que se reinicia al final.",
            ),
            ("ann", "Ben, ¿actualizaste el ticket?"),
        ],
    ),
]

OFFERS = (
    "compare the three cloud offers for our database",
    "Offer A costs 400 euros a month with 2 TB of storage and daily backups. Offer B costs 350 euros but has no backups. Offer C costs 520 euros, with support by phone.",
)
BY_THE_REQUESTER = """
are you sure?
where did you get the prices?
how do you know?
which one would you take?
what if we need 4 TB?
and with yearly payment?
put the cheapest first
drop offer C
you forgot the setup fee
that can't be right
no, per year
I meant per year
hm, what about Hetzner?
please make a short recommendation for my boss
in dollars please
mach daraus eine Tabelle
kannst du das auch für Hetzner prüfen?
das stimmt nicht, B kostet 370
et sans support ?
fais plus court
¿cuál recomiendas?
qual é a mais barata?
なぜBは安いの？
ドルで
一番安いのは？
哪个最便宜？
换成美元
再短一点
"""
"""For the agent, if the person who asked for the offers writes it right after the answer."""
BY_OTHERS = """
which offer has phone support?
is there a cheaper offer with backups?
ask offer B's vendor about backups
what does the storage of offer A cost per TB?
can you add Hetzner to the offers?
welches Angebot hat Backups?
quelle offre a le support ?
"""
"""For the agent, even from somebody else and after talk."""
OF_COLLEAGUES = """
can you back me up in the meeting?
the offer from Acme was a joke
did your landlord accept the offer?
how much did you pay for that?
could you check the printer
let me know when you're free
file your timesheets please
give me the short version later
move your car please
make sure the door is closed
is the demo still at three?
does anybody have a charger?
I can show you how
read the docs first
write to HR about it
start without me
add me on LinkedIn
what's the status of your migration?
any news from legal?
kann mal jemand den Drucker checken
schaust du dir mein Review an?
stell den Termin bitte auf Montag
tu m'envoies le lien ?
on se voit demain ?
me pasas el enlace?
avisa al cliente porfa
manda o link da reunião
já viste o meu email?
リンク送って
明日の会議、何時から？
この件、部長に聞いて
把链接发我
你周一在办公室吗
帮我占个座
"""
"""For each other."""
