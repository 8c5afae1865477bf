"""The chat commands, one row each, and what is derived from the rows: the grammar of typed commands, help and dispatch.

The platforms also build their menus, forms and suggestions from the rows."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Literal

from bots.inbound.actions import CommandCalled, Outcome, stop_request_from
from bots.inbound.commands import admin, suggestions
from bots.inbound.commands.agents import answer_agents
from bots.inbound.commands.budget import answer_budget
from bots.inbound.commands.conversation import (
    CommandDeps,
    answer_files,
    answer_follow,
    answer_new,
    answer_status,
    answer_usage,
    answer_use,
    require_conversation,
)
from bots.inbound.commands.export import answer_export
from bots.inbound.commands.forget import answer_forget
from bots.inbound.commands.knowledge import answer_knowledge
from bots.inbound.commands.plan import answer_plan
from bots.inbound.commands.schedules import answer_schedules
from bots.inbound.commands.short_replies import read_yes_no_stop
from bots.inbound.commands.suggestions import FindValues, Suggestion
from bots.inbound.commands.why import answer_why
from core.domain.actions import IncomingMessage, StopRequested
from core.domain.audit import AuditAction, AuditEntry
from core.domain.budget import is_limit_text

Answer = Callable[[CommandCalled, CommandDeps], Awaitable[Outcome]]
TYPED_WORDS_MAX = 3
"""A message of at most this many words that begins like a command is taken for a mistyped command."""
_SIMILARITY_MIN = 0.75
_PLEASE = re.compile(r"[ ,]please[.!]*\Z", re.IGNORECASE)
_PRONOUNS = "this|that|these|those|it|them|both|all|either|neither|none|any|one|the|mine|yours"
HOOK_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{2,39}")
_LETTERS = "[A-HJ-NP-Za-hj-np-z2-9]{4}"
_FITS: Mapping[str, Callable[[str], object]] = {
    # no agent may have a pronoun as its name, because "use both" answers a question
    "NAME": re.compile(rf"(?!(?:{_PRONOUNS})\Z)\S{{1,64}}", re.IGNORECASE).fullmatch,
    "AGENT": re.compile(r"\S{1,64}").fullmatch,
    "SERVER": re.compile(r"\S{1,64}").fullmatch,
    "NUMBER": re.compile(r"\d{1,9}").fullmatch,
    "CODE": re.compile(rf"{_LETTERS}[- ]?{_LETTERS}").fullmatch,
    "LIMIT": is_limit_text,
    "TOPIC": lambda word: word == "all" or word in COMMANDS,
    "SCHEDULE": re.compile(r"[a-zA-Z0-9-]{1,40}").fullmatch,
    "HOOK": HOOK_NAME.fullmatch,
    "PERSON": re.compile(r".{1,80}").fullmatch,
    "FILE": bool,
    "TEXT": bool,
}
"""Functions that check whether the given words match a placeholder, such as NAME. A placeholder at the end of a form
matches all remaining words."""


@dataclass(frozen=True, slots=True)
class CommandForm:
    """One way of writing a command.

    `usage` is what follows the command's name: literal words, placeholders in capitals, alternatives with `|`, and
    optional parts in brackets. `audit` is the action for the audit log, if no store records the change. If `is_typed`
    is false, the form works only as an option of a slash command, not as a message."""

    usage: str = ""
    help: str = ""
    is_for_admins: bool = False
    audit: AuditAction | None = None
    is_typed: bool = True

    def match_words(self, words: Sequence[str]) -> str | None:
        """Returns the words in their normal spelling, or None if they do not match this form."""
        parts, left, kept = self.usage.split(), list(words), list[str]()
        for number, part in enumerate(parts, start=1):
            name = part.strip("[]")
            fits = _FITS.get(name)
            taken = len(left) if fits and number == len(parts) else 1
            given = " ".join(left[:taken])
            if not fits:
                given = given.lower().rstrip(".!")
            elif given[:1] == given[-1:] == "`":
                given = given[1:-1]
            if not given or not (fits(given) if fits else given in name.split("|")):
                if part.startswith("["):
                    continue
                return None
            kept.append(given)
            left = left[taken:]
        return None if left else " ".join(kept)

    def begins_with(self, word: str) -> bool:
        """Whether the form begins with this literal word."""
        first = self.usage.partition(" ")[0].strip("[]")
        return word in first.split("|") and first not in _FITS


@dataclass(frozen=True, slots=True)
class CommandOption:
    """An option of a slash command.

    `kind` is a line, a number, a yes, a file, a whole request, or a choice of several words. With `find`, values are
    suggested for the option."""

    name: str
    help: str
    kind: Literal["line", "number", "yes", "file", "request"] | tuple[str, ...] = "line"
    find: FindValues | None = None
    default: object = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the table. `help` is one line of at most 100 characters.

    `answer` is None for a command that goes through the inbox. With `is_private`, the command is refused if everyone in
    the channel would see the response. `slash_prefix` is inserted before the values of the options. With
    `is_top_level`, the slash command is `/NAME` instead of `/agent NAME`. With `is_general`, it is the same in each
    conversation."""

    name: str
    help: str
    answer: Answer | None
    forms: tuple[CommandForm, ...] = (CommandForm(),)
    options: tuple[CommandOption, ...] = ()
    is_top_level: bool = False
    slash_prefix: str = ""
    is_private: bool = False
    takes_files: bool = False
    is_general: bool = False

    @property
    def is_about_conversation(self) -> bool:
        return not (self.is_general or self.is_for_admins)

    @property
    def is_for_admins(self) -> bool:
        return all(one.is_for_admins for one in self.forms)

    def match_words(self, words: Sequence[str], *, is_typed: bool = False) -> tuple[CommandForm, str] | None:
        """Returns the form that the words after the name match, and their normal spelling. Returns None if no form
        matches."""
        usable = (one for one in self.forms if one.is_typed or not is_typed)
        return next(((one, argument) for one in usable if (argument := one.match_words(words)) is not None), None)

    def is_probably_meant(self, words: Sequence[str]) -> bool:
        """Whether a few words after the name are probably this command in a wrong form, and not chatter. This is so if
        there are no words, if they begin like a form, or if an admin's command is followed by a number or code."""
        if not words or any(one.begins_with(words[0].lower()) for one in self.forms):
            return True
        return any(one.is_for_admins for one in self.forms) and bool(re.search(r"\d", words[0]))

    def list_forms(self, *, is_admin: bool) -> list[tuple[str, str]]:
        """Returns each form as code, with its help."""
        shown = [one for one in self.forms if is_admin or not one.is_for_admins]
        return [(f"`{self.name} {one.usage}".rstrip() + "`", one.help or self.help) for one in shown]


_ROWS = (
    Command("stop", "Stop what the agent is doing in this thread", None, is_top_level=True),
    Command("status", "What the agent is doing in this thread", require_conversation(answer_status), is_top_level=True),
    Command(
        "files",
        "The files in this thread's workspace",
        require_conversation(answer_files),
        (CommandForm(), CommandForm("FILE", "Posts a file here, or lists a folder", is_typed=False)),
        options=(CommandOption("path", "A file to post here, or a folder to list", find=suggestions.find_file_values),),
        is_top_level=True,
    ),
    Command("usage", "Tokens and cost of this thread", require_conversation(answer_usage), is_top_level=True),
    Command("why", "What the newest run has read, and what it asked", require_conversation(answer_why)),
    Command(
        "new",
        "Start over: the next message here begins a new conversation",
        require_conversation(answer_new),
        is_top_level=True,
    ),
    Command(
        "export",
        "Post this conversation as a file",
        require_conversation(lambda called, snapshot, deps: answer_export(called, snapshot, deps.erasure)),
        is_top_level=True,
    ),
    Command(
        "forget",
        "Delete this conversation and its workspace",
        lambda called, deps: answer_forget(called, deps.erasure, deps.admin.policy),
        (
            CommandForm("[yes]", "Lists what this conversation holds; with `yes`, deletes it with its files"),
            CommandForm("me [yes]", "Says what is stored about you; with `yes`, deletes it"),
        ),
        options=(
            CommandOption(
                "what", "This conversation, or what is stored about you", ("conversation", "me"), default="conversation"
            ),
            CommandOption("sure", "Delete it now, for good", "yes", default=False),
        ),
        is_top_level=True,
    ),
    Command(
        "help",
        "What the agent can do and how to ask for it",
        lambda called, deps: _help(called, deps),
        (CommandForm("[TOPIC]", "Short help, help for one word, or with `all` a list of all words"),),
        options=(CommandOption("topic", "A word to explain, or all", find=lambda called, deps: _find_topics()),),
        is_top_level=True,
        is_general=True,
    ),
    Command(
        "use",
        "Choose the agent for this thread",
        answer_use,
        (CommandForm("", "Lists the agents"), CommandForm("NAME", "That agent works here from the next request on")),
        options=(
            CommandOption(
                "name",
                "The agent for this thread; leave it empty to list the agents",
                find=suggestions.find_agent_values,
            ),
        ),
    ),
    Command(
        "knowledge",
        "Files that the agent knows here",
        lambda called, deps: answer_knowledge(called, deps.knowledge),
        (
            CommandForm("[list]", "Lists the files that I know in this conversation"),
            CommandForm("add", "With files attached: makes them known in this conversation", audit="knowledge_changed"),
            CommandForm("remove FILE", "Removes one of them", audit="knowledge_changed"),
        ),
        options=(
            CommandOption("action", "What to do", ("add", "list", "remove"), is_required=True),
            CommandOption("file", "The file to add", "file"),
            CommandOption("name", "The name of the file to remove", find=suggestions.find_knowledge_values),
        ),
        takes_files=True,
    ),
    Command(
        "plan",
        "The plan that the agent works on here",
        require_conversation(lambda called, snapshot, deps: answer_plan(called, snapshot, deps.plans)),
        (
            CommandForm("[show]", "Shows the plan"),
            CommandForm("add TEXT", "Adds a step", audit="plan_changed"),
            CommandForm("remove NUMBER", "Removes a step", audit="plan_changed"),
            CommandForm("skip NUMBER", "Skips a step", audit="plan_changed"),
            CommandForm("stop", "Gives the plan up", audit="plan_changed"),
        ),
        options=(
            CommandOption("action", "What to do", ("show", "add", "remove", "skip", "stop"), is_required=True),
            CommandOption("step", "The text of the step to add, or the number of an existing step"),
        ),
    ),
    Command(
        "follow",
        "Which messages here the agent takes up",
        answer_follow,
        (
            CommandForm(
                "[default|follow|mention|quiet]",
                "In this thread, I answer a message without a mention if one person writes to me, if it is meant"
                " for me, never, or not until somebody mentions me again",
            ),
            CommandForm("[default|follow|mention|quiet] channel", "The same for all threads here", is_for_admins=True),
        ),
        options=(
            CommandOption(
                "mode",
                "Read one person, everybody, only mentions, or nothing until the next mention",
                ("default", "follow", "mention", "quiet"),
                is_required=True,
            ),
            CommandOption(
                "place", "This thread, or the whole channel (admins)", ("thread", "channel"), default="thread"
            ),
        ),
    ),
    Command(
        "schedules",
        "What the agent does later, or again and again, here",
        lambda called, deps: answer_schedules(called, deps.schedules, is_admin=_is_admin(called, deps)),
        (
            CommandForm("[list]", "Lists the schedules and reminders here; in a direct message, all of yours"),
            CommandForm(
                "run|pause|resume|edit|delete SCHEDULE", "Begins one now, pauses it, arms it again, or deletes it"
            ),
            CommandForm(
                "hook HOOK [TEXT]",
                "Makes an address that other programs call, and says what I do then; without a text, shows the address",
                is_for_admins=True,
            ),
        ),
        options=(
            CommandOption("action", "What to do", ("list", "run", "pause", "resume", "delete", "hook"), default="list"),
            CommandOption("schedule", "The schedule, or the name of the hook", find=suggestions.find_schedule_values),
            CommandOption("task", "Admins: what to do when the hook is called"),
        ),
        is_general=True,
    ),
    Command(
        "agents",
        "The versions of an agent, what changed, and the way back",
        lambda called, deps: answer_agents(called, deps.roster),
        (
            CommandForm("versions AGENT", "Lists an agent's versions"),
            CommandForm("compare AGENT NUMBER [NUMBER]", "Shows what changed between two versions, or since one"),
            CommandForm("rollback AGENT NUMBER", "Goes back to a version", is_for_admins=True),
            CommandForm("reset AGENT", "Goes back to the agent's file", is_for_admins=True),
        ),
        options=(
            CommandOption(
                "action",
                "What to do; rollback and reset are for admins",
                ("versions", "compare", "rollback", "reset"),
                is_required=True,
            ),
            CommandOption("name", "The agent", is_required=True, find=suggestions.find_agent_values),
            CommandOption("version", "The number of a version", "number"),
            CommandOption("other", "The number of the version to compare it with", "number"),
        ),
        is_general=True,
    ),
    Command(
        "budget",
        "What runs may cost here; admins change it",
        lambda called, deps: answer_budget(called, deps.budget),
        (
            CommandForm("", "Shows what may be spent here, and what was"),
            CommandForm(
                "run|person|app|channel|workspace LIMIT",
                "Changes a limit to US dollars (`5`), tokens (`2000000 tokens`), `none`, or `default`, which is the"
                " configured one",
                is_for_admins=True,
            ),
        ),
        options=(
            CommandOption(
                "scope",
                "What the limit is for; leave it empty to see all limits",
                ("run", "person", "app", "channel", "workspace"),
            ),
            CommandOption("limit", "US dollars (5), tokens (2000000 tokens), none, or default"),
        ),
        is_general=True,
    ),
    Command(
        "pair",
        "Admins: let someone write to the agent",
        lambda called, deps: admin.answer_pair(called, deps.admin),
        (CommandForm("CODE", "Admits the person who was given the code", is_for_admins=True),),
        options=(CommandOption("code", "The code that the person was given", is_required=True),),
    ),
    Command(
        "unpair",
        "Admins: take that back",
        lambda called, deps: admin.answer_unpair(called, deps.admin),
        (CommandForm("PERSON", "Revokes that, by name or id", is_for_admins=True),),
        options=(CommandOption("name", "The name or the id of the person", is_required=True),),
    ),
    Command(
        "who",
        "Admins: who may talk to the agent",
        lambda called, deps: admin.answer_who(called, deps.admin),
        (CommandForm(is_for_admins=True),),
        is_private=True,
    ),
    Command(
        "audit",
        "Admins: who did what here",
        lambda called, deps: admin.answer_audit(called, deps.admin),
        (CommandForm("[NUMBER]", is_for_admins=True),),
        options=(CommandOption("count", "How many entries", "number"),),
        is_private=True,
    ),
    Command(
        "mcp",
        "Admins: agree to the use of a tool server",
        lambda called, deps: admin.answer_mcp_connect(called, deps.admin),
        (CommandForm("connect SERVER", is_for_admins=True),),
        options=(CommandOption("server", "The name of the tool server", is_required=True),),
        slash_prefix="connect",
        is_private=True,
    ),
)
COMMANDS: Mapping[str, Command] = {one.name: one for one in _ROWS}
HELP = """In a channel, mention me and say what you need. In a direct message, or a thread that I am in, just write. \
Attach files if they help.
`stop` ends what I am doing, `status` says what that is, and `new` begins a new conversation.
`help all` lists all such words, and `help knowledge`, for example, explains one.

For example:
- Sum up this thread: what have we decided, and what is still open?
- What sold best by region? Draw a chart. (with a table attached)
- Find three suppliers of paper bags near us and compare their prices, with sources."""
USAGE_HINT = "what you need, or " + ", ".join(one.name for one in COMMANDS.values() if not one.is_for_admins)


def parse_command(text: str, *, has_files: bool = False, may_be_wrong: bool = True) -> tuple[str, str] | None:
    """Returns the command's name and what follows it if the whole message is a command, else None.

    A message with files can only be a command that accepts files. With `may_be_wrong`, also returns a few words that
    are a command in a wrong form. The response to them explains the correct form."""
    words = _PLEASE.sub("", text.strip()).strip(" ,").split()
    if not words:
        return None
    is_stop = read_yes_no_stop(" ".join(words)) == "stop"
    command = COMMANDS.get("stop" if is_stop else words[0].rstrip(".!").lower())
    if command is None or (has_files and not command.takes_files):
        return None
    arguments = [] if is_stop else words[1:]
    if found := command.match_words(arguments, is_typed=True):
        return command.name, found[1]
    is_meant = may_be_wrong and len(words) <= TYPED_WORDS_MAX and command.is_probably_meant(arguments)
    return (command.name, " ".join(arguments)) if is_meant else None


def suggest_command(text: str) -> str | None:
    """Returns the command that a few words after a slash command were probably meant to be. Returns None if they are a
    valid command or resemble none."""
    words = text.lower().split()
    if not words or len(words) > TYPED_WORDS_MAX or parse_command(text):
        return None
    return next(iter(get_close_matches(words[0], COMMANDS, n=1, cutoff=_SIMILARITY_MIN)), None)


def parse_written_command(
    message: IncomingMessage, words: str, *, has_files: bool
) -> IncomingMessage | CommandCalled | StopRequested:
    """Returns the command or stop request that the message's `words` consist of, or the message itself if they are
    something else.

    Without a mention, only stop requests and `follow` count. The users of the thread may be talking to each other, but
    StopRequested posts nothing if no run is active."""
    command = parse_command(words, has_files=has_files, may_be_wrong=message.is_addressed)
    is_for_others = message.is_to_others and not message.is_addressed
    if command is None or message.actor.app_ids or is_for_others:
        return message
    name, argument = command
    if not (message.is_addressed or name == "follow"):
        return stop_request_from(message) if name == "stop" else message
    return CommandCalled(
        address=message.address,
        dedupe_key=message.dedupe_key,
        person=message.person,
        sent_at=message.sent_at,
        files=message.files,
        is_addressed=message.is_addressed,
        actor=message.actor,
        name=name,
        argument=argument,
        message=message,
    )


async def answer_command(called: CommandCalled, deps: CommandDeps) -> Outcome:
    """Answers a chat command, except `stop`, which goes through the inbox."""
    command = COMMANDS[called.name]
    if command.answer is None:
        raise ValueError(f"{called.name} goes through the inbox")
    found, is_admin = command.match_words(called.argument.split()), _is_admin(called, deps)
    if not is_admin and (found[0].is_for_admins if found else command.is_for_admins):
        return Outcome(notice=admin.ADMINS_ONLY)
    if found is None:
        return Outcome(notice=f"I do not understand that. It is written like this:\n{_explain(command, is_admin)}")
    if command.is_private and admin.is_answer_public(called):
        return Outcome(notice=admin.NOT_IN_PUBLIC.format(name=called.name))
    return await command.answer(replace(called, argument=found[1]), deps)


async def suggest_values(called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    """Returns the values that contain what was typed (`called.argument`) for an option of the command."""
    find = next((one.find for one in COMMANDS[called.name].options if one.find), None)
    return await suggestions.find_matching_values(find, called, deps) if find else ()


def audit_entry_for(called: CommandCalled, outcome: Outcome) -> AuditEntry | None:
    """Returns the audit entry for a command that changed knowledge or a plan, otherwise None.

    The stores create the audit entries of all other commands."""
    form, argument = COMMANDS[called.name].match_words(called.argument.split()) or (CommandForm(), "")
    if (action := form.audit) is None or outcome.is_private:
        return None
    words = argument.partition(" ")[0] if "TEXT" in form.usage else argument
    return AuditEntry(
        action=action,
        actor=called.person,
        address=called.address,
        subject=f"{words} {', '.join(file.name for file in called.files)}".strip(),
        happened_at=datetime.now(UTC),
    )


def _is_admin(called: CommandCalled, deps: CommandDeps) -> bool:
    return deps.admin.policy.is_admin(called.address.workspace_id, called.person.person_id, called.actor)


async def _help(called: CommandCalled, deps: CommandDeps) -> Outcome:
    is_admin = _is_admin(called, deps)
    if not called.argument:
        return Outcome(notice=HELP)
    if called.argument != "all":
        return Outcome(notice=_explain(COMMANDS[called.argument], is_admin))
    shown = [one for one in COMMANDS.values() if is_admin or not one.is_for_admins]
    lines = [f"- {', '.join(form for form, _ in one.list_forms(is_admin=is_admin))}: {one.help}" for one in shown]
    return Outcome(notice="\n".join(lines))


async def _find_topics() -> Sequence[Suggestion]:
    return [(one.name, f"{one.name}: {one.help}") for one in COMMANDS.values()] + [("all", "all")]


def _explain(command: Command, is_admin: bool) -> str:
    return "\n".join(f"- {form}: {text}" for form, text in command.list_forms(is_admin=is_admin))
