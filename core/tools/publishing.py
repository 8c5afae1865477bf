"""Tools that publish a workspace folder as a static website and give users a link to a port of the sandbox."""

from collections.abc import AsyncIterator

from pydantic import BaseModel, Field, field_validator

from core.domain.call_consent import Reach
from core.domain.errors import ToolError
from core.domain.sources import offer_addresses
from core.ports import FileEntry, Files
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.paths import add_path_to_error, validated_workspace_path
from core.web_access.cloudflare import FILE_BYTES_MAX, RULES, SiteFile, project_name

SITE_FILES_MAX = 2_000
SITE_BYTES_MAX = 60_000_000
SITE_FOLDERS_MAX = 500


class DeployParams(BaseModel):
    """Publish a folder on the public web as a static site, for everybody and permanently, if people ask for it. They
    approve it first. The same name replaces the earlier site. To show a page, its preview link is enough."""

    name: str = Field(min_length=1, max_length=100, description="Part of the address: a-z, 0-9 and dashes.")
    directory_path: str = Field(min_length=1, max_length=4096, description="Folder relative to /workspace.")

    @field_validator("name")
    @classmethod
    def _as_project(cls, value: str) -> str:
        try:
            return project_name(value)
        except ToolError as error:
            raise ValueError(str(error)) from error

    _relative = field_validator("directory_path")(validated_workspace_path)


async def run_deploy(params: DeployParams, context: ToolContext) -> ToolOutput:
    pages = context.outside.sites
    if pages is None:
        raise ToolError("Nothing can be deployed here. Hand the files over instead.")
    files = (await context.sandbox()).files
    start = "" if params.directory_path == "." else f"{params.directory_path}/"
    site, rules, left = list[SiteFile](), dict[str, bytes](), SITE_BYTES_MAX
    entries: list[FileEntry] = []
    async for entry in _below(files, params.directory_path):
        entries.append(entry)
        if len(entries) > SITE_FILES_MAX:
            break
    if too_large := [entry.path for entry in entries if entry.size_bytes > FILE_BYTES_MAX]:
        raise ToolError(f"{', '.join(too_large[:5])}: larger than 25 MB, which cannot be deployed. Nothing was.")
    if len(entries) > SITE_FILES_MAX or sum(entry.size_bytes for entry in entries) > SITE_BYTES_MAX:
        raise ToolError(
            f"{params.directory_path} holds more than {SITE_FILES_MAX} files or {SITE_BYTES_MAX // 1_000_000} MB."
            " Nothing was deployed; leave out what the site does not need."
        )
    for entry in entries:
        bytes_max = min(left, FILE_BYTES_MAX)
        content = b"".join([piece async for piece in files.read(entry.path, length=bytes_max + 1)])
        if len(content) > bytes_max:
            raise ToolError(
                f"{entry.path} has grown meanwhile, to more than can be deployed. Nothing was deployed; call it again"
                " when the files are done."
            )
        left -= len(content)
        name = entry.path.removeprefix(start)
        if name in RULES:
            rules[name] = content
        else:
            site.append(SiteFile(path=f"/{name}", content=content))
    if not any(file.path == "/index.html" for file in site):
        raise ToolError(
            f"There is no index.html in {params.directory_path}, so nothing was deployed. Name the folder that has it."
        )
    done = await pages.deploy(params.name, site, rules)
    report = (
        f"Deployed {len(site)} files as {params.name}. The site is at {done.url} (this version at {done.version_url});"
        " it may take a minute until it is there."
    )
    return ToolOutput(output=report, sources=offer_addresses([done.url, done.version_url]))


async def _below(files: Files, folder: str) -> AsyncIterator[FileEntry]:
    """Yields the files of a folder and of its subfolders.

    Skips `node_modules`, symbolic links and hidden entries other than `.well-known`.
    """
    folders = [folder]
    for visited, path in enumerate(folders):
        if visited >= SITE_FOLDERS_MAX:
            raise ToolError(f"{folder} has more than {SITE_FOLDERS_MAX} folders. Nothing was deployed.")
        try:
            entries = await files.list(path)
        except ToolError as error:
            raise add_path_to_error(path, error) from error
        if len(entries) == 1 and entries[0].path == path:
            raise ToolError(f"{path} is not a folder. Name the folder that the file is in.")
        for entry in entries:
            name = entry.path.rpartition("/")[2]
            if name.startswith(".") and name != ".well-known":
                continue
            if entry.kind == "folder" and name != "node_modules":
                folders.append(entry.path)
            elif entry.kind == "file":
                yield entry


deploy = Tool(
    name="deploy",
    effect="acts",
    reach=lambda params: Reach("writes_outside", (params.name,)),
    params=DeployParams,
    run=run_deploy,
    title=lambda params: f"Deploying {params.directory_path} as {params.name}",
    example={"name": "spring-report", "directory_path": "site"},
    needs_approval=lambda _params: "Put a folder on the public web",
    timeout_seconds=600,
    requires=("sandbox", "site_hosting"),
)


class ExposeParams(BaseModel):
    """Get a link for people to a program in the sandbox. Start the program first, in the background, on 0.0.0.0. The
    link works while the program runs, for everybody who has it. HTML files need no program; they have preview
    links."""

    port: int = Field(ge=1, le=65_535)


async def run_expose(params: ExposeParams, context: ToolContext) -> ToolOutput:
    sandbox = await context.sandbox()
    try:
        stream = await sandbox.connect(params.port)
    except ToolError as error:
        raise ToolError(
            f"{error} Start the program in the background, see with check_command_output that it listens, and call"
            " expose_port again."
        ) from error
    stream.close()
    url = await sandbox.find_port_url(params.port) or context.links.port_url(params.port)
    if url is None:
        raise ToolError("Ports cannot be exposed here. Hand over files or screenshots instead.")
    report = f"Port {params.port} is reachable at {url} as long as the program runs."
    return ToolOutput(output=report, sources=offer_addresses([url]))


expose_port = Tool(
    name="expose_port",
    effect="acts",
    reach=lambda params: Reach("writes_outside", (str(params.port),)),
    params=ExposeParams,
    run=run_expose,
    title=lambda params: f"Making port {params.port} reachable",
    example={"port": 8000},
    is_idempotent=True,
    requires=("sandbox", "port_links"),
)
