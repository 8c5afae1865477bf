"""The commands of `threadhand hooks`: they list, add, test and remove hooks in the database."""

from bots.inbound.commands.schedules import arm_hook
from bots.inbound.commands.table import HOOK_NAME
from bots.settings import Settings
from bots.web.hooks import describe_hook
from core.domain.errors import ConfigurationError, ToolError
from core.domain.outside_text import single_line
from core.domain.schedules import Schedule
from core.domain.threads import Address, Person, Selection
from core.stores import Schedules
from core.tools.schedules import change_schedule_by, describe_schedule, is_hook
from storage.sql.database import opened_database
from storage.sql.stores.schedules import SqlSchedules

OPERATOR = Person(person_id="operator", name="The operator")
NONE = "There are no hooks yet."


async def list_hooks(settings: Settings) -> str:
    """Returns each hook, with its state and how to call it. Like all functions here, raises ConfigurationError or
    StorageUnavailable."""
    async with opened_database(settings.storage_url) as database:
        schedules = await SqlSchedules(database).list_schedules(Selection())
    hooks = [
        f"{describe_schedule(schedule, single_line)}\n{_how_to_call(schedule, settings)}"
        for schedule in schedules
        if is_hook(schedule)
    ]
    return "\n\n".join(hooks) or NONE


async def add_hook(settings: Settings, name: str, channel: str, owner_id: str, task: str) -> str:
    """Arms a hook in the channel (`platform/workspace/channel`) with the rights of the owner, a user there. Returns how
    to call it."""
    platform, _, place = channel.partition("/")
    workspace_id, _, channel_id = place.partition("/")
    if platform not in ("slack", "discord") or not workspace_id or not channel_id or "/" in channel_id:
        raise ConfigurationError("Write the channel like slack/T0123/C0123 or discord/SERVER/CHANNEL.")
    if not HOOK_NAME.fullmatch(name):
        raise ConfigurationError("A hook's name has 3 to 40 letters, digits and dashes, and begins with a letter.")
    address = Address(
        platform="slack" if platform == "slack" else "discord",
        workspace_id=workspace_id,
        channel_id=channel_id,
        thread_key="",
    )
    owner = Person(person_id=owner_id, name=owner_id)
    async with opened_database(settings.storage_url) as database:
        hook = await arm_hook(name.lower(), task, address, owner, SqlSchedules(database), settings.schedule_limits)
    if isinstance(hook, str):
        raise ConfigurationError(hook)
    return _how_to_call(hook, settings)


async def try_hook(settings: Settings, name: str) -> str:
    """Begins the hook's task without a call, when the program next looks for due schedules. Returns a sentence about
    it."""
    async with opened_database(settings.storage_url) as database:
        store = SqlSchedules(database)
        hook = await _find(store, name)
        try:
            await change_schedule_by(OPERATOR, hook, "run_now", store, settings.schedule_limits)
        except ToolError as error:
            raise ConfigurationError(str(error)) from error
    return f"Within a few seconds, {name} begins its task in a new thread."


async def remove_hook(settings: Settings, name: str) -> str:
    async with opened_database(settings.storage_url) as database:
        store = SqlSchedules(database)
        await store.delete((await _find(store, name)).schedule_id, by=OPERATOR)
    return f"Removed: {name}."


def _how_to_call(hook: Schedule, settings: Settings) -> str:
    return describe_hook(hook, settings.public_url).replace("`", "")


async def _find(store: Schedules, name: str) -> Schedule:
    found = await store.find(name.lower())
    if found is None or not is_hook(found):
        raise ConfigurationError(f"There is no hook {name}. `threadhand hooks list` shows those there are.")
    return found
