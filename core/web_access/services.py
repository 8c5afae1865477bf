"""What of the world outside a program has: the services that its settings name."""

from dataclasses import dataclass, field

from core.web_access.cloudflare import CloudflarePages
from core.web_access.drawing import Drawer
from core.web_access.guard import Guard
from core.web_access.pages import PageReader
from core.web_access.providers import RapidApi
from core.web_access.search import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The services by role. None: not set up; the tools that need it are not offered."""

    guard: Guard = field(default_factory=Guard)
    search: Search | None = None
    pages: PageReader | None = None
    drawer: Drawer | None = None
    providers: RapidApi | None = None
    sites: CloudflarePages | None = None

    async def close(self) -> None:
        """Closes what the services hold open."""
        if self.drawer is not None:
            await self.drawer.close()
