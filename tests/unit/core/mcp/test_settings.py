"""The settings file: what it may say, and what the operator is told of a mistake."""

import json
import re
from pathlib import Path

import pytest

from core.domain.errors import ConfigurationError
from core.mcp.secrets import secret_values
from core.mcp.settings import McpServerConfig, parse_servers, read_servers

WHOLE = """
servers:
  files:
    command: python
    args: [-m, files, "--key=${KEY}"]
    env: {TOKEN: "${TOKEN}", PORT: 8080, DEBUG: true, HOME: "${NOWHERE:-/srv}"}
    cwd: /srv
    enabled_tools: [read_*]
    needs_approval: writes
  search:
    type: streamable-http
    url: https://example.com/mcp
    headers: {Authorization: "Bearer ${TOKEN}"}
    needs_approval: [delete_*]
    call_timeout_seconds: 5
  old:
    transport: sse
    url: http://127.0.0.1:1/sse
"""


def test_a_whole_file_is_read() -> None:
    files, search, old = parse_servers(WHOLE, {"KEY": "k", "TOKEN": "tttt"})
    assert (files.transport, files.command, files.args) == ("stdio", "python", ("-m", "files", "--key=k"))
    assert files.env == {"TOKEN": "tttt", "PORT": "8080", "DEBUG": "true", "HOME": "/srv"}
    assert (files.enabled_tools, files.needs_approval) == (("read_*",), "writes")
    assert (search.transport, search.headers) == ("http", {"Authorization": "Bearer tttt"})
    assert (search.needs_approval, search.call_timeout_seconds) == (("delete_*",), 5)
    assert (old.transport, old.url) == ("sse", "http://127.0.0.1:1/sse")


def test_json_in_the_form_of_other_clients_is_read() -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "x"}, "b": {"url": "http://h/mcp"}}})
    assert [one.transport for one in parse_servers(text, {})] == ["stdio", "http"]


@pytest.mark.parametrize("text", ["", "servers: {}", "{}\n", "---\n"])
def test_nothing_is_no_servers(text: str) -> None:
    if text == "{}\n":
        with pytest.raises(ConfigurationError):
            parse_servers(text, {})
    else:
        assert parse_servers(text, {}) == ()


def test_no_secret_stands_in_what_a_server_is_printed_as() -> None:
    (files, search, _) = parse_servers(WHOLE, {"KEY": "key-value", "TOKEN": "token-value"})
    assert "-value" not in repr(files) + repr(search) + str(files)
    assert files.secrets == {"key-value", "token-value", "/srv"}


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("{}", "a server over http needs a url"),
        ("{command: x, transport: http}", "a server over http needs a url"),
        ("{command: x, url: 'http://h'}", "url, headers and oauth belong to sse and http, not to stdio"),
        ("{url: 'http://h', env: {A: b}}", "command, args, env and cwd belong to stdio"),
        ("{url: 'file:///etc'}", "url: it must be an address that starts with http:// or https://"),
        ("{command: x, args: y}", "args: Input should be a valid tuple"),
        ("{command: x, timeout: 3}", "timeout: Extra inputs are not permitted"),
        ("{command: x, call_timeout_seconds: 0}", "call_timeout_seconds: Input should be greater"),
        ("{url: 'http://h', headers: {'A b': c}}", "headers: 'A b' is no name of a header"),
        ("{url: 'http://h', headers: {A: \"x\\ny\"}}", "has characters that a header cannot hold"),
        ("{command: x, env: {'A=B': c}}", "env: 'A=B' cannot be set as a variable"),
        ("{command: x, transport: carrier}", "transport: Input should be 'stdio', 'sse' or 'http'"),
        ("{command: '${MISSING}'}", "s refers to MISSING, which is not set: set that variable"),
        ("[]", "s must be a mapping"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(server: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        parse_servers(f"servers: {{s: {server}}}", {})
    assert str(caught.value).startswith("In the MCP settings, s")


def test_a_mistake_tells_no_secret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_servers("servers: {s: {url: '${KEY}'}}", {"KEY": "s3cret"})
    assert "s3cret" not in str(caught.value) + repr(caught.value.__cause__)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("servers: [", "neither YAML nor JSON (line 1)"),
        ("a: 1", "a mapping with one key"),
        ("servers: 3", "a mapping with one key"),
        ("servers: {'a b': {command: x}}", "its name may hold letters"),
        ("servers: {" + "a" * 33 + ": {command: x}}", "at most 32 characters"),
        (json.dumps({"servers": {f"s{n}": {"command": "x"} for n in range(51)}}), "more than 50"),
    ],
)
def test_a_file_of_another_shape_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        parse_servers(text, {})


@pytest.mark.parametrize("names", [("git", "git_hub"), ("a_b", "a__b"), ("x", "x_")])
def test_servers_whose_tools_could_be_confused_are_refused(names: tuple[str, str]) -> None:
    text = json.dumps({"servers": {name: {"command": "x"} for name in names}})
    with pytest.raises(ConfigurationError, match="could not be told apart"):
        parse_servers(text, {})


def test_a_server_cannot_be_changed() -> None:
    config = McpServerConfig(name="a", transport="stdio", command="x")
    with pytest.raises(ValueError, match="frozen"):
        config.command = "y"


def test_a_file_is_read_and_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mcp.yaml"
    with pytest.raises(ConfigurationError, match=r"mcp\.yaml cannot be read \(No such file"):
        read_servers(file, {})
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="it is no text"):
        read_servers(file, {})
    file.write_text("servers: {a: {command: x}}")
    assert [one.name for one in read_servers(file, {})] == ["a"]


@pytest.mark.parametrize("secret", ["/9j4AAQSkZJRg+x", ".s3cret-of-ours", "~tilde-secret"])
def test_a_secret_that_looks_like_a_path_is_redacted(secret: str) -> None:
    [server] = parse_servers(
        f"servers: {{a: {{command: x, env: {{API_KEY: '{secret}', OTHER: '${{KEY}}'}}}}}}", {"KEY": f"{secret}2"}
    )
    assert secret_values(server) == (f"{secret}2", secret)


def test_secrets_in_an_address_are_redacted() -> None:
    key = "abc%2Fdefghi"
    [server] = parse_servers(
        f"servers: {{a: {{url: 'https://me:pass-word@h.example/mcp?page=10000000&api_key={key}'}}}}", {}
    )
    assert secret_values(server) == (key, "abc/defghi", "pass-word")


def test_headers_are_redacted_except_what_every_request_accepts() -> None:
    headers = "{Access-Token: tok-123456, Authorization: Bearer abcdefgh, Accept-Language: 'en-GB,en'}"
    [server] = parse_servers(f"servers: {{a: {{url: 'https://h.example/mcp', headers: {headers}}}}}", {})
    assert secret_values(server) == ("Bearer abcdefgh", "tok-123456", "abcdefgh")


def test_paths_and_addresses_are_not_redacted(tmp_path: Path) -> None:
    place = tmp_path / "key.pem"
    [server] = parse_servers(
        f"servers: {{a: {{command: x, env: {{KEY_FILE: {place}, AUTH_URL: '${{URL}}'}}}}}}",
        {"URL": "https://h.example/login"},
    )
    assert secret_values(server) == ()
