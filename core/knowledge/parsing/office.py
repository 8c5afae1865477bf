"""What Word, PowerPoint and Excel files have in common: a package of related parts, which are XML files, and text with
marks such as bold."""

import io
import posixpath
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import lxml.etree as untyped

from core.knowledge.document import Document, DocumentKind, Page, ParseLimits, Unreadable
from core.knowledge.parsing.blocks import Mark, TextRun, change_marks, left_out_page, render_runs, render_table
from core.knowledge.parsing.child import XML_NO_MEMORY
from core.knowledge.parsing.number_formats import format_stored_number

_ETREE: Any = untyped
_DECLARATIONS = tuple(
    mark.encode(encoding) for mark in ("<!DOCTYPE", "<!ENTITY") for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)
_PROLOGUE_BYTES = 65_536
_ENCRYPTED = 0x1
DAMAGE = (_ETREE.XMLSyntaxError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
"""The exceptions that are raised for a part that cannot be unpacked or parsed."""
_ADDRESS_CHARACTERS_MAX = 2_000
DELETED = "deleted"
"""The attribute that `Package.root` gives to a paragraph whose end was deleted."""
_OFF = ("0", "false", "off", "none", "noStrike")


class Relation(NamedTuple):
    """A part or an address that a part refers to. `kind` is the last word of the relation's type."""

    kind: str
    target: str


class OfficePackage:
    """An office file. `left_out` counts the content that no reader shows, by its name."""

    def __init__(self, content: bytes, limits: ParseLimits) -> None:
        """Raises Unreadable for a package that unpacks to too much, is encrypted, or whose XML declares entities.

        ECMA-376 part 2 forbids document type declarations, so a file with one is hostile. A part cannot unpack to more
        than its declared size, because zipfile stops at that size."""
        self._archive = zipfile.ZipFile(io.BytesIO(content))
        parts = self._archive.infolist()
        if len(parts) > limits.zip_parts_max or sum(part.file_size for part in parts) > limits.zip_bytes_max:
            raise Unreadable("unpacked")
        if any(part.flag_bits & _ENCRYPTED for part in parts):
            raise Unreadable("protected")
        # some programs write names with other case or slashes than the relations that refer to them
        self._parts = {part.filename.replace("\\", "/").lower(): part for part in parts}
        self.left_out = Counter[str]()

    def names(self) -> Iterable[str]:
        """Returns the names of the parts in lower case."""
        return self._parts

    def open_part(self, part: str) -> Any:
        """Opens a part. Raises Unreadable if it is absent or declares entities."""
        if (found := self._parts.get(part.lower())) is None:
            raise Unreadable("broken", part)
        with self._archive.open(found) as opened:
            head = opened.read(_PROLOGUE_BYTES)
        if any(mark in head for mark in _DECLARATIONS):
            raise Unreadable("hostile")
        return self._archive.open(found)

    def read_cleaned_root(self, part: str, *, is_needed: bool = False) -> Any:
        """Returns the root of a part, with tags without namespaces, because Strict files have other namespaces. Deleted
        text and alternatives for old programs are removed. Returns an empty element for an absent or damaged part,
        unless the part is needed."""
        if part.lower() not in self._parts and not is_needed:
            return _ETREE.Element("absent")
        try:
            with self.open_part(part) as opened:
                root = _ETREE.parse(opened, _ETREE.XMLParser(resolve_entities=False, remove_comments=True)).getroot()
        except DAMAGE as error:
            if is_needed:
                raise
            self.count_damage(error)
            return _ETREE.Element("absent")
        for element in root.iter("*"):
            element.tag = local_name(element.tag)
        self.left_out["tracked deletion"] += sum(next(e.iter("delText"), None) is not None for e in root.iter("del"))
        for mark in root.iterfind(".//pPr/rPr/del"):
            mark.getparent().getparent().getparent().set(DELETED, "1")
        _ETREE.strip_elements(root, "del", "moveFrom", "Fallback", with_tail=False)
        _ETREE.strip_tags(root, *_WRAPPERS)
        return root

    def count_damage(self, error: Exception) -> None:
        """Counts an unreadable part as left out. If the error is a lack of memory, raises it."""
        if getattr(error, "code", 0) == XML_NO_MEMORY:
            raise error
        self.left_out["damaged part"] += 1

    def read_part(self, part: str) -> bytes:
        """Returns the content of a part that is in `names`, which may declare entities."""
        return self._archive.read(self._parts[part.lower()])

    def relations(self, part: str) -> dict[str, Relation]:
        """Returns what the part refers to, by relation id. Targets are part names unless they are addresses."""
        folder, _, name = part.rpartition("/")
        found = dict[str, Relation]()
        for element in self.read_cleaned_root(f"{folder}/_rels/{name}.rels".lstrip("/")):
            kind, target = element.get("Type", "").rpartition("/")[2], element.get("Target", "")
            if element.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, target.replace("\\", "/"))).lstrip("/")
            found[element.get("Id", "")] = Relation(kind, target)
        return found

    def main_part(self) -> str:
        """Returns the name of the part that the others belong to. Raises Unreadable."""
        for relation in self.relations("").values():
            if relation.kind == "officeDocument":
                return relation.target
        raise Unreadable("broken")

    def build_document(self, kind: DocumentKind, pages: Iterable[Page]) -> Document:
        """Returns the document. If something is left out, the first page lists it."""
        pages = tuple(pages)
        title = self.read_cleaned_root("docProps/core.xml").xpath("string(title)") or self.read_cleaned_root(
            "meta.xml"
        ).xpath("string(//title)")
        return Document(title=title.strip(), kind=kind, pages=(*left_out_page(self.left_out), *pages))


def local_name(tag: str) -> str:
    return tag.rpartition("}")[2]


def attribute_value(element: Any, name: str) -> str:
    """Returns an attribute whatever its namespace, or an empty text."""
    return next((value for key, value in element.items() if local_name(key) == name), "")


def relation_id(element: Any, name: str = "id") -> str:
    """Returns an attribute that refers to a relation. Other attributes may have the same name."""
    return next((value for key, value in element.items() if key.endswith(f"/relationships}}{name}")), "")


def child_value(element: Any, name: str) -> str:
    """Returns the value of the child with this name, or an empty text."""
    found = element.find(name)
    return attribute_value(found, "val") if found is not None else ""


def is_switched_on(element: Any, name: str) -> bool:
    """Returns whether the element has a child that switches on a property."""
    found = element.find(name)
    return found is not None and attribute_value(found, "val") not in _OFF


_WRAPPERS = ("ins", "moveTo", "sdt", "sdtContent", "customXml", "smartTag", "AlternateContent", "Choice")
_SIGNS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_UNREAD = frozenset(("pPr", "rPr", "sdtPr", "tabs", "tabLst", "rt", "rPh", "txbxContent"))
_SYMBOLS = {
    "wingdings": str.maketrans("þýüûo¨§qàßáâèJKLnlØ", "☑☒✓✗☐☐▪☐→←↑↓➔☺😐☹■●➢"),
    "wingdings 2": str.maketrans("RSTPO£*0", "☑☒☒✓✗☐☐☐"),
} | {"symbol": str.maketrans("abcdefghiklmnpqrstuwxyzDFGLPQSWY£³´¹·", "αβχδεφγηικλμνπθρστυωξψζΔΦΓΛΠΘΣΩΨ≤≥×≠•")}
"""The characters that symbol fonts draw for letters."""
_PRIVATE = {0xF000 + at: at for at in range(0x20, 0x100)}
_ADDRESS = re.compile(r'\s*+HYPERLINK\s++(?:\\[omnt]\s*+(?:"[^"]*+"\s*+)?){0,9}"?([^"\s\\][^"\s]*)', re.IGNORECASE)
_EQUATION = {
    "num": "({})",
    "den": "/({})",
    "sup": "^({})",
    "sub": "_({})",
    "lim": "_({})",
    "rad": "√({})",
    "deg": "({})",
}
_Switched = Mapping[Mark, bool]


@dataclass(slots=True)
class _Field:
    """A field whose end has not been read yet. Only its result is shown."""

    instruction: str = ""
    is_result: bool = False


class PartText:
    """Reads the text in the elements of one part. `notes` are the texts of footnotes and comments, each of which is
    shown where it is first referred to. `styles` are the marks that character styles switch on or off."""

    def __init__(
        self,
        package: OfficePackage,
        part: str,
        notes: dict[str, str] | None = None,
        styles: Mapping[str, _Switched] | None = None,
    ) -> None:
        self._package, self._relations = package, package.relations(part)
        self._notes, self._styles = notes if notes is not None else {}, styles or {}
        self._fields = list[_Field]()

    def line(self, element: Any, marks: frozenset[Mark] = frozenset()) -> str:
        """Returns the element's text as Markdown. `marks` are those of its style."""
        for field in self._fields:
            field.is_result = True  # so that a damaged field hides at most one paragraph
        return re.sub(" +", " ", render_runs(self._runs(element, TextRun("", marks)))).strip()

    def relation_target(self, element: Any, name: str = "id") -> str:
        """Returns the part or address that an attribute of the element names, or an empty text."""
        relation = self._relations.get(relation_id(element, name))
        return relation.target if relation else ""

    def _runs(self, element: Any, around: TextRun) -> Iterator[TextRun]:
        """Yields the runs in an element. `around` has the marks and link of what surrounds it."""
        name = element.tag
        if (text := self._leaf_text(element)) is not None:
            if all(field.is_result for field in self._fields):
                field = _ADDRESS.match(self._fields[-1].instruction) if self._fields else None
                yield TextRun(text, around.marks, around.link or (field[1] if field else ""))
        elif name == "OLEObject":
            self._package.left_out["embedded file"] += 1
        elif name == "instrText" and self._fields:
            field = self._fields[-1]
            field.instruction = (field.instruction + (element.text or ""))[:_ADDRESS_CHARACTERS_MAX]
        elif name not in _UNREAD:
            yield from self._inner_runs(element, around)
            match attribute_value(element, "fldCharType"):
                case "begin":
                    self._fields.append(_Field())
                case "separate" if self._fields:
                    self._fields[-1].is_result = True
                case "end":
                    del self._fields[-1:]
                case _:
                    pass

    def _leaf_text(self, element: Any) -> str | None:
        """Returns the text of an element that is read as a unit, or None for other elements."""
        match element.tag:
            case "t":
                return element.text or ""
            case "tab" | "ptab" | "br" | "cr" | "noBreakHyphen" as name:
                return _SIGNS[name]
            case "oMath" | "oMathPara":
                return equation_text(element)
            case "sym":
                symbol = chr(int(attribute_value(element, "char"), 16) & 0xFF)
                return symbol.translate(_SYMBOLS.get(attribute_value(element, "font").lower(), {}))
            case "docPr":
                is_named = next(element.getparent().iter("txbx", "txbxContent", "chart", "relIds"), None) is None
                return f" {name_picture(element)} " if is_named else ""
            case "chart" | "relIds":
                return f"\n{self.graphic(element)}\n"
            case "footnoteReference" | "endnoteReference" | "commentReference" as name:
                note = self._notes.pop(f"{name.removesuffix('Reference')} {attribute_value(element, 'id')}", "")
                return f" {note}" if note else ""
            case "textpath":  # a watermark
                return element.get("string", "")
            case "checkBox":
                return (
                    "☑" if is_switched_on(element, "default" if element.find("checked") is None else "checked") else "☐"
                )
            case "ddList":
                entries = [attribute_value(entry, "val") for entry in element.iterchildren("listEntry")]
                chosen = int(child_value(element, "result") or child_value(element, "default") or 0)
                return entries[chosen] if chosen < len(entries) else ""
            case _:
                return None

    def _inner_runs(self, element: Any, around: TextRun) -> Iterator[TextRun]:
        if element.tag == "hyperlink":
            around = TextRun("", around.marks, self.relation_target(element))
        elif element.tag == "fldSimple" and (field := _ADDRESS.match(attribute_value(element, "instr"))):
            around = TextRun("", around.marks, field[1])
        symbols: dict[int, Any] = {}
        if (properties := element.find("rPr")) is not None:
            clicked = properties.find("hlinkClick")
            link = self.relation_target(clicked) if clicked is not None else ""
            switched: dict[Mark, bool] = {
                **self._styles.get(child_value(properties, "rStyle"), {}),
                **marks_of(properties),
            }
            around = TextRun("", change_marks(around.marks, switched), link or around.link)
            fonts = (value for font in properties.iter("rFonts", "sym", "latin") for value in font.values())
            symbols = next((_PRIVATE | _SYMBOLS[font.lower()] for font in fonts if font.lower() in _SYMBOLS), symbols)
        for child in element:
            for run in self._runs(child, around):
                yield TextRun(run.text.translate(symbols), run.marks, run.link) if symbols else run

    def graphic(self, element: Any) -> str:
        """Returns the figures of a chart as a table, or the words of a diagram."""
        if element.tag == "chart":
            chart = self._package.read_cleaned_root(self.relation_target(element))
            if next(chart.iter("ser"), None) is not None:
                return chart_table(chart)
            self._package.left_out["chart"] += 1
            return "[chart]"
        points = self._package.read_cleaned_root(self.relation_target(element, "dm")).iter("pt")
        words = ("".join(text.text or "" for text in point.iter("t")).strip() for point in points)
        return f"[diagram: {'; '.join(filter(None, words))}]"


def marks_of(properties: Any) -> dict[Mark, bool]:
    """Returns the marks, such as struck or hidden, that the properties of a piece of text switch on or off."""
    switched = dict[Mark, bool]()
    if properties is None:
        return switched
    if place := child_value(properties, "vertAlign") or properties.get("baseline", ""):
        switched["superscript"] = place == "superscript" or place[0] in "123456789"
        switched["subscript"] = place.startswith(("subscript", "-"))
    strikes = [is_switched_on(properties, name) for name in ("strike", "dstrike") if properties.find(name) is not None]
    if "strike" in properties.attrib:
        strikes.append(properties.get("strike") not in _OFF)
    if strikes:
        switched["struck"] = any(strikes)
    if properties.find("vanish") is not None:
        switched["hidden"] = is_switched_on(properties, "vanish")
    return switched


def name_picture(properties: Any) -> str:
    label = properties.get("descr") or properties.get("title") or properties.get("name") or ""
    return f"[picture: {' '.join(label.split())}]"


def equation_text(element: Any) -> str:
    """Returns an equation as a line: (a)/(b), x^(2), √(y)."""
    name = element.tag
    if name == "t":
        return element.text or ""
    if name in _UNREAD:
        return ""
    if name == "m":
        rows = (", ".join(map(equation_text, row.iterchildren("e"))) for row in element.iterchildren("mr"))
        return f"[{'; '.join(rows)}]"
    text = "".join(map(equation_text, element))  # because lxml refuses more than 256 levels
    if text and name in ("d", "nary"):  # their properties may define the characters
        marks = {one.tag: "".join(one.values()[:1]) for one in element[0]}
        marked = "{begChr}{}{endChr}" if name == "d" else "{chr}{}"
        return marked.format(text, **{"begChr": "(", "endChr": ")", "chr": "∫"} | marks)
    return _EQUATION.get(name, "{}").format(text) if text else ""


def chart_table(chart: Any) -> str:
    """Returns the chart's figures as a table: a row for each category, a column for each series."""
    title = " ".join("".join(chart.xpath("chart/title//t/text()")).split())
    columns: list[dict[str, str]] = []
    names = dict[str, str]()
    heads = [""]
    for series in chart.iter("ser"):
        heads.append(series.xpath("string(tx//v)"))
        names |= _points(series, "cat", "xVal")
        columns.append(_points(series, "val", "yVal"))
    places = sorted(set(names).union(*columns), key=lambda place: (len(place), place))
    rows = ([names.get(place, place), *(column.get(place, "") for column in columns)] for place in places)
    label = f"[chart: {title}]" if title else "[chart]"
    return f"{label}\n\n{render_table([heads, *rows])}"


def _points(series: Any, *kinds: str) -> dict[str, str]:
    """Returns the stored values by their position."""
    held = [values for kind in kinds for values in series.iterchildren(kind)]
    code = next((code.text or "" for values in held for code in values.iter("formatCode")), "")
    points = (point for values in held for point in values.iter("pt"))
    return {point.get("idx", ""): format_stored_number(point.xpath("string(v)"), code) for point in points}
