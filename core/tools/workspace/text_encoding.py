"""Decodes text files, and encodes them with the encoding, byte order mark and line ends that they had."""

from dataclasses import dataclass

from core.domain.errors import ToolError
from core.knowledge.document import Unreadable
from core.knowledge.parsing.encodings import detect_encoding

HEAD_BYTES = 8192
EDIT_BYTES_MAX = 5_000_000


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """How a text file is stored: the name of its encoding, and its byte order mark, which may be empty."""

    name: str
    mark: bytes = b""

    def encode(self, text: str, path: str) -> bytes:
        """Returns the bytes of a text. Bytes that could not be decoded are written as they were.

        Raises ToolError if the encoding lacks characters, and replaces none."""
        try:
            return self.mark + text.encode(self.name, "surrogateescape")
        except UnicodeEncodeError as error:
            lacking = sorted(one for one in set(text) if not self._has(one))[:LACKING_NAMED_MAX]
            raise ToolError(
                f"{path} is {self.name} text, which cannot hold the character"
                f" {', '.join(map(ascii, lacking)) or ascii(text[error.start])}. Nothing was written. Leave the"
                " character out, or convert the file to UTF-8 first."
            ) from error

    def _has(self, character: str) -> bool:
        try:
            return bool(character.encode(self.name, "surrogateescape"))
        except UnicodeEncodeError:
            return False


LACKING_NAMED_MAX = 10


def decode_text_file(content: bytes, path: str) -> tuple[str, TextEncoding]:
    """Returns a file's text and how it is stored, so that the text encodes to the same bytes again.

    Raises ToolError if the file is binary or too large, or if its bytes would not come out as they were."""
    if len(content) > EDIT_BYTES_MAX:
        raise ToolError(f"{path} is larger than {EDIT_BYTES_MAX} bytes; edit it with a command such as sed.")
    encoding = require_encoding(content, path)
    text = content[len(encoding.mark) :].decode(encoding.name, "surrogateescape")
    try:
        is_kept = encoding.encode(text, path) == content
    except ToolError:
        is_kept = False
    if not is_kept:
        raise ToolError(
            f"{path} holds bytes that are not {encoding.name} text and would change; edit it with a program."
        )
    return text, encoding


def encode_new_text(text: str, path: str) -> bytes:
    """Returns the bytes of a text that the model wrote. Raises ToolError for half a character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{path} is utf-8 text, which cannot hold the character {text[error.start]!a}. Nothing was written."
        ) from error


def replace_undecodable(text: str) -> str:
    """Returns the bytes of a text that the model wrote. Raises ToolError for half of a surrogate pair."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def require_encoding(head: bytes, path: str) -> TextEncoding:
    """Returns how a text file is stored, detected from its first bytes. Raises ToolError if the file is binary."""
    try:
        return TextEncoding(*detect_encoding(head))
    except Unreadable as error:
        raise ToolError(
            f"{path} is a binary file, not text. Use a program that knows its format, or attach it for the people."
        ) from error
