"""Go regular expressions, matched by RE2.

Go's regexp and RE2 share syntax and matches. A pattern is translated where they differ: names of groups and of
character classes, `\\C`, huge repeat counts. Errors have Go's texts. RE2 is imported with the first pattern; if it
is not installed, every pattern is an error. Source: Go's regexp/syntax.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

_MAX_REPEATS = 1000
_MAX_DEPTH = 1000  # of parentheses
_MAX_MEMORY = 320 << 20  # bytes; 3.3 million instructions, as many as Go allows. RE2's default are 8 MiB.


class PatternError(ValueError):
    """An invalid regular expression, with the error of Go's regexp.Compile."""

    def __init__(self, problem: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        self._search = _compiled(text).search

    def occurs_in(self, text: str) -> bool:
        return _next_match(self._search, text.encode(), 0) is not None

    def all_in(self, text: str) -> Iterator[str]:
        """Return non-overlapping matches from left to right; no empty match directly after another match."""
        return (match[0].decode() for match in _all_matches(self._search, text.encode()))


def _all_matches(search: Callable[..., Any], content: bytes) -> Iterator[Any]:
    """Source: Regexp.allMatches."""
    at, last = 0, -1
    while at <= len(content) and (match := _next_match(search, content, at)) is not None:
        start, end = match.span()
        if end > at or start != last:
            yield match
        at = end if end > at else _next_character(content, at)
        last = end


def _next_match(search: Callable[..., Any], content: bytes, at: int) -> Any:
    """Return the first match from `at`, or None."""
    while (match := search(content, at)) is not None:
        start, end = match.span()
        if start < end or start == len(content) or content[start] & 0xC0 != 0x80:
            return match
        at = _next_character(content, start)  # RE2's \B matches within a character
    return None


def _next_character(content: bytes, at: int) -> int:
    """Return the position of the next character of UTF-8 text."""
    at += 1
    while at < len(content) and content[at] & 0xC0 == 0x80:
        at += 1
    return at


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern. Raises PatternError."""
    return Pattern(text)


def matches(text: str, value: str) -> bool:
    """Return True if the value contains a match, or the pattern is invalid (such a definition is never accepted)."""
    try:
        return compile_pattern(text).occurs_in(value)
    except PatternError:
        return True


# --- compilation ------------------------------------------------------------------------------------------------------

_TOO_LARGE = "pattern too large - compile failed"
_NOT_INSTALLED = "google-re2 is not installed: `pip install google-re2` compiles it for a Python without wheels"
_PROBLEMS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}
"""Errors of RE2 and those of Go; others have the same text."""


def _compiled(text: str) -> Any:
    """Compile with RE2. Raises PatternError."""
    translation = _Translation(text)
    try:
        _re2()
    except ImportError:
        raise PatternError(_NOT_INSTALLED, text) from None
    try:
        try:
            compiled = _re2_compiled(translation.pattern)
        except _re2().error as error:
            if _message(error) != _TOO_LARGE:
                raise
            compiled = _re2_compiled(translation.pattern, max_mem=_MAX_MEMORY)
    except _re2().error as error:
        raise _pattern_error(translation, _message(error)) from None
    if text.count("(") > _MAX_DEPTH and _depth(text) > _MAX_DEPTH:
        raise PatternError("expression nests too deeply", text)
    return compiled


def _re2() -> Any:
    import re2  # few processes need it

    return re2


def _re2_compiled(pattern: str, **options: int) -> Any:
    # never_capture: most searches need no groups. UTF-8 is searched as bytes: offsets into str would be converted.
    re2_options = _re2().Options()
    re2_options.log_errors = False
    re2_options.never_capture = True
    for name, value in options.items():
        setattr(re2_options, name, value)
    return _re2().compile(pattern.encode(), re2_options)


def _message(error: Exception) -> str:
    message: bytes = error.args[0]
    return message.decode(errors="replace")


_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}(?=\??\Z)")


def _pattern_error(translation: _Translation, message: str) -> PatternError:
    """Return Go's error for that of RE2."""
    if message == _TOO_LARGE:
        return PatternError("expression too large", translation.text)
    if message == "invalid UTF-8":  # the text ends within \x{
        return PatternError("invalid escape sequence", r"\x{")
    problem, _, part = message.partition(": ")
    count = _COUNT.search(part)
    if count is not None and problem in ("bad repetition operator", "invalid repetition size"):
        least, most = int(count[1]), int(count[2]) if count[2] else None
        if least > _MAX_REPEATS or (most is not None and (most > _MAX_REPEATS or least > most)):
            return PatternError("invalid repeat count", translation.original(count[0]))  # Go checks the numbers first
    return PatternError(_PROBLEMS.get(problem, problem), translation.original(part))


# --- translation ------------------------------------------------------------------------------------------------------

_DIFFERENCES = re.compile(r"\\[pPC]|\(\?P?<|\{[0-9,]{10}")
_CLASS = r"\\[pP](?:\{[^}]*\}|[^{])"
_TOKEN = re.compile(
    rf"""\\Q.*?(?:\\E|\Z)
      | (?P<class>{_CLASS})
      | \\[pP]\{{.*|\\x\{{[^}}]*|\(\?[imsU-]*\\|\\.
      | (?P<set>\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*)
      | (?P<name>\(\?P?<[A-Za-z0-9_]+>)
      | (?P<invalid_name>\(\?P?<.+)
      | (?P<count>\{{(?:0|[1-9][0-9]*)(?:,(?:0|[1-9][0-9]*)?)?\}})
      | [()]""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = r"\\x\{[^}]*\}?|\\x..|\\[0-7]{1,3}|\\."
_IN_SET = re.compile(  # a backslash that ends a range begins no class
    rf"\A\[\^?|\[:\^?[a-z]+:\]|({_CLASS})|\\[pP]\{{.*|\\[dDsSwW]|(?:{_ESCAPE}|[^\\])(?:-(?:{_ESCAPE}|[^\]\\]))?",
    re.DOTALL,
)
_NO_ESCAPE = "\\\ue000"  # invalid for RE2


class _Translation:
    """A pattern in RE2's syntax."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._originals: dict[str, str] = {}
        self._shortened: list[tuple[int, int]] = []  # offset in `pattern`, characters lost there
        self._lost = 0
        self.pattern = _TOKEN.sub(self._translated, text) if _DIFFERENCES.search(text) else text

    def _translated(self, token: re.Match[str]) -> str:
        text = token[0]
        match token.lastgroup:
            case "class":
                replacement = _translated_class(text)
            case "set":
                replacement = _IN_SET.sub(self._translated_in_set, text)
            case "name":
                replacement = "("  # Go allows a name twice
            case "invalid_name":  # RE2 allows letters beyond ASCII, and has another error for `(?<=`
                replacement = "(?P<>"
                self._originals.setdefault(replacement, text[: text.find(">") + 1] or text)
            case "count":
                replacement = re.sub("[0-9]{5,}", "9999", text)  # RE2 takes huge ones literally
            case _:
                replacement = _NO_ESCAPE if text == r"\C" else text
        self._note(token.start() - self._lost, text, replacement)
        return replacement

    def _translated_in_set(self, token: re.Match[str]) -> str:
        if not token[1]:
            return token[0]
        replacement = _translated_class(token[0], in_set=True)
        self._originals.setdefault(replacement, token[0])
        return replacement

    def _note(self, at: int, text: str, replacement: str) -> None:
        self._originals.setdefault(replacement, text)
        if text != replacement:
            self._shortened.append((at, len(text) - len(replacement)))
            self._lost += len(text) - len(replacement)

    def original(self, part: str) -> str:
        """Return what was translated to `part`: a token, the end of the pattern, or all of it."""
        if part in self._originals:
            return self._originals[part]
        if not part or not self.pattern.endswith(part):
            return part
        at = len(self.pattern) - len(part)
        lost = sum(count for where, count in self._shortened if where >= at)
        return self.text[len(self.text) - len(part) - lost :]


def _depth(text: str) -> int:
    """Return how deep the parentheses of a valid pattern are nested."""
    depth = deepest = 0
    for token in _TOKEN.finditer(text):
        depth += token[0].startswith("(") - (token[0] == ")")
        deepest = max(deepest, depth)
    return deepest


# --- character classes ------------------------------------------------------------------------------------------------

_LONG_SCRIPTS = """
    Anatolian_Hieroglyphs Bassa_Vah Canadian_Aboriginal Caucasian_Albanian Cypro_Minoan Dives_Akuru Egyptian_Hieroglyphs
    Gunjala_Gondi Hanifi_Rohingya Imperial_Aramaic Inscriptional_Pahlavi Inscriptional_Parthian Kayah_Li
    Khitan_Small_Script Linear_A Linear_B Masaram_Gondi Meetei_Mayek Mende_Kikakui Meroitic_Cursive
    Meroitic_Hieroglyphs Nag_Mundari New_Tai_Lue Nyiakeng_Puachue_Hmong Ol_Chiki Old_Hungarian Old_Italic
    Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Pahawh_Hmong
    Pau_Cin_Hau Phags_Pa Psalter_Pahlavi SignWriting Sora_Sompeng Syloti_Nagri Tai_Le Tai_Tham Tai_Viet Warang_Citi
    Zanabazar_Square
"""
_CATEGORIES = """
    C:Other Cc:Control,cntrl Cf:Format Cn:Unassigned Co:Private_Use Cs:Surrogate L:Letter LC:Cased_Letter
    Ll:Lowercase_Letter Lm:Modifier_Letter Lo:Other_Letter Lt:Titlecase_Letter Lu:Uppercase_Letter M:Mark,Combining_Mark
    Mc:Spacing_Mark Me:Enclosing_Mark Mn:Nonspacing_Mark N:Number Nd:Decimal_Number,digit Nl:Letter_Number
    No:Other_Number P:Punctuation,punct Pc:Connector_Punctuation Pd:Dash_Punctuation Pe:Close_Punctuation
    Pf:Final_Punctuation Pi:Initial_Punctuation Po:Other_Punctuation Ps:Open_Punctuation S:Symbol Sc:Currency_Symbol
    Sk:Modifier_Symbol Sm:Math_Symbol So:Other_Symbol Z:Separator Zl:Line_Separator Zp:Paragraph_Separator
    Zs:Space_Separator
"""
_ASSIGNED = r"\pL\pM\pN\pP\pS\pZ\pC"  # RE2's C is without Cn


def _canonical(name: str) -> str:
    """Return the form in which names are compared: case, spaces, "_" and "-" are ignored."""
    return "".join(char for char in name if char not in "_- ").capitalize()


@cache
def _class_names() -> dict[str, str]:
    """Return RE2's or Go's names of classes by canonical name, as far as they differ from it."""
    names = {_canonical(name): name for name in _LONG_SCRIPTS.split()}
    for entry in _CATEGORIES.split():
        category, _, aliases = entry.partition(":")
        names |= {_canonical(alias): category for alias in (category, *aliases.split(","))}
    return names | {"Ascii": "ASCII"}


def _translated_class(text: str, *, in_set: bool = False) -> str:
    r"""Translate `\p{name}`, `\P{name}`, `\pN`. in_set: within brackets."""
    name = text[3:-1] if text[2] == "{" else text[2]
    negated = (text[1] == "P") != name.startswith("^")
    name = _canonical(name.removeprefix("^"))
    name = _class_names().get(name, name)
    if name not in ("ASCII", "Assigned", "C", "Cn", "LC"):
        return rf"\{'P' if negated else 'p'}{{{name}}}"
    if not in_set:
        return f"[{'^' if negated else ''}{_members(name)}]"
    return _members({"Assigned": "Cn", "Cn": "Assigned"}.get(name, f"not {name}") if negated else name)


def _members(name: str) -> str:
    """Return the members of a class that only Go has, as in brackets."""
    match name:
        case "ASCII":
            return r"\x00-\x7F"
        case "not ASCII":
            return r"\x{80}-\x{10FFFF}"
        case "LC":
            return r"\p{Lu}\p{Ll}\p{Lt}"
        case "not LC":
            return r"\p{Lm}\p{Lo}\pM\pN\pP\pS\pZ" + _members("C")
        case "C":
            return r"\pC" + _unassigned()
        case "not C":
            return r"\pL\pM\pN\pP\pS\pZ"
        case "Cn":
            return _unassigned()
    return _ASSIGNED


@cache
def _unassigned() -> str:
    everything = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    matches = _all_matches(_re2_compiled(f"[^{_ASSIGNED}]+").search, everything.encode())
    gaps = (match[0].decode() for match in matches)
    return "".join(rf"\x{{{ord(gap[0]):x}}}-\x{{{ord(gap[-1]):x}}}" for gap in gaps)
