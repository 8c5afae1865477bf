"""The web services that are configured in the settings."""

from dataclasses import dataclass, field

from core.web_access.cloudflare import CloudflarePages
from core.web_access.guard import AddressGuard
from core.web_access.image_generation import ImageGenerator
from core.web_access.pages import PageReader
from core.web_access.providers import RapidApi
from core.web_access.search import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServices:
    """The configured web services by role. None disables the tools that need the service."""

    guard: AddressGuard = field(default_factory=AddressGuard)
    search: Search | None = None
    pages: PageReader | None = None
    image_generator: ImageGenerator | None = None
    providers: RapidApi | None = None
    sites: CloudflarePages | None = None

    async def close(self) -> None:
        """Closes the connections of the services."""
        if self.image_generator is not None:
            await self.image_generator.close()
