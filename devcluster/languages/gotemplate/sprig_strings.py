"""Sprig's functions for strings, paths, encodings and regular expressions.

Lengths and positions count bytes, as in Go; a cut character becomes U+FFFD. Sources: Sprig's strings.go, regex.go,
crypto.go; Masterminds/goutils; huandu/xstrings; path.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeloop.devcluster.languages.gotemplate.signature import Function
from kubeloop.devcluster.languages.gotemplate.sprig_numbers import MAX_RESULT
from kubeloop.devcluster.languages.gotemplate.sprig_values import to_string
from kubeloop.devcluster.languages.gotemplate.values import FunctionError
from kubeloop.kube.field_errors import quoted

if TYPE_CHECKING:
    from kubeloop.cel.regex import Pattern

_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

# --- parts --------------------------------------------------------------------------------------------------------


def _bytes(text: str, start: int, stop: int) -> str:
    return text.encode()[start:stop].decode(errors="replace")


def _trunc(count: int, text: str) -> str:
    length = len(text.encode())
    if count >= 0:
        return _bytes(text, 0, count)
    return _bytes(text, length + count, length) if length + count > 0 else text


def _substr(start: int, stop: int, text: str) -> str:
    length = len(text.encode())
    first, last = (0, stop) if start < 0 else (start, length if stop < 0 or stop > length else stop)
    if not 0 <= first <= last <= length:
        raise FunctionError(f"slice bounds out of range [{first}:{last}] with length {length}")
    return _bytes(text, first, last)


def _abbreviated(offset: int, width: int, text: str) -> str:
    length = len(text.encode())
    if length <= width:
        return text
    offset = min(offset, length, length - (width - 3))
    if offset <= 4:
        return _bytes(text, 0, width - 3) + "..."
    if offset + width - 3 < length:
        return "..." + _abbreviated(0, width - 3, _bytes(text, offset, length))
    return "..." + _bytes(text, length - (width - 3), length)


def _abbrev_both(left: int, right: int, text: str) -> str:
    return text if right < 4 or (left > 0 and right < 7) else _abbreviated(left, right, text)


def _split(separator: str, text: str, limit: int = -1) -> list[str]:
    """Split as strings.SplitN: an empty separator splits after each character; a limit of 0 returns nothing."""
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    characters = list(text)
    return characters if limit < 0 else [*characters[: limit - 1], *filter(None, ["".join(characters[limit - 1 :])])]


def _numbered(parts: list[str]) -> dict[str, str]:
    return {f"_{at}": part for at, part in enumerate(parts)}


# --- lines --------------------------------------------------------------------------------------------------------


def _repeat(count: int, text: str) -> str:
    if count < 0:
        raise FunctionError("strings: negative Repeat count")
    if count * len(text) > MAX_RESULT:
        raise FunctionError(f"a text has at most {MAX_RESULT} characters")
    return text * count


def _indent(count: int, text: str) -> str:
    pad = _repeat(count, " ")
    return pad + text.replace("\n", "\n" + pad)


def _wrapped(width: int, text: str, new_line: str, *, breaks_words: bool) -> str:
    """Wrap one line at spaces; a word longer than the width is broken only if `breaks_words`."""
    data, at, width, lines = text.encode(), 0, max(width, 1), []
    while len(data) - at > width:
        if data[at : at + 1] == b" ":
            at += 1
            continue
        stop = data.rfind(b" ", at, at + width + 1)
        after = stop + 1
        if stop < 0 and breaks_words:
            stop = after = at + width
        elif stop < 0:
            stop = data.find(b" ", at + width)
            after = stop + 1
            if stop < 0:
                break
        lines.append(data[at:stop])
        at = after
    return new_line.join(line.decode(errors="replace") for line in (*lines, data[at:]))


# --- case ---------------------------------------------------------------------------------------------------------


def _mapped(function: Callable[[str], str], text: str) -> str:
    """Map each character to one character, as Go does, also where Python would return two (ß)."""
    return "".join(mapped if len(mapped := function(sign)) == 1 else sign for sign in text)


def _upper(text: str) -> str:
    return _mapped(str.upper, text)


def _lower(text: str) -> str:
    return _mapped(str.lower, text)


def _title(text: str) -> str:
    return re.sub(r"(?<!\w)\w", lambda match: _upper(match[0]), text)


def _untitle(text: str) -> str:
    return re.sub(r"(?<!\S)\S", lambda match: _lower(match[0]), text)


def _swap_case(text: str) -> str:
    return _mapped(str.swapcase, text)


_WORDS = re.compile(
    r"""(?P<connector>[-_\s]+)
      | (?P<other>[^\w\s-]+)
      | \d+(?:[^\W\dA-Z_][^\WA-Z_]*)?
      | (?:[A-Z]+(?![^\W\dA-Z_]) | [A-Z]?[^\W\dA-Z_]+)(?:\d+(?![^\WA-Z_]))?""",
    re.VERBOSE,
)


def _lower_words(text: str, connector: str) -> str:
    """Join the words of a name by a connector: FirstName, http2xx."""
    result, after_word = "", False
    for match in _WORDS.finditer(text):
        is_word = match.lastgroup is None
        result += connector if is_word and after_word else ""
        result += re.sub(r"[-_\s]", connector, match[0]) if match.lastgroup == "connector" else _lower(match[0])
        after_word = is_word
    return result


def _camel_case(text: str) -> str:
    """Join words with upper case first letters; of several connectors all but one remain."""
    stripped = text.lstrip("-_" + _SPACE)
    lead, body = text[: len(text) - len(stripped)], stripped
    words = re.sub(r"([-_\s]*)[-_\s]([^-_\s])", lambda match: match[1] + _upper(match[2]), body)
    return lead + _upper(words[:1]) + words[1:]


# --- paths --------------------------------------------------------------------------------------------------------


def _clean(path: str) -> str:
    return re.sub(r"^//", "/", posixpath.normpath(path))


def _base(path: str) -> str:
    return posixpath.basename(path.rstrip("/")) or ("/" if path else ".")


def _extension(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[name.rindex(".") :] if "." in name else ""


# --- encodings ----------------------------------------------------------------------------------------------------


def _decoder(decode: Callable[[str], bytes], name: str) -> Callable[[str], str]:
    def decoded(text: str) -> str:
        """Return the decoded text or, as Sprig, the message of an error."""
        try:
            return decode(re.sub(r"[\r\n]", "", text)).decode(errors="replace")
        except (binascii.Error, ValueError):
            return f"illegal {name} data"

    return decoded


_b64decode = _decoder(lambda text: base64.b64decode(text, validate=True), "base64")
_b32decode = _decoder(base64.b32decode, "base32")


def _digest(algorithm: str) -> Callable[[str], str]:
    def digest(text: str) -> str:
        import hashlib  # few templates need it

        return hashlib.new(algorithm, text.encode(), usedforsecurity=False).hexdigest()

    return digest


# --- regular expressions ------------------------------------------------------------------------------------------


def _pattern(text: str) -> Pattern:
    from kubeloop.cel.regex import PatternError, compile_pattern  # few templates need it

    try:
        return compile_pattern(text)
    except PatternError as error:
        raise FunctionError(str(error)) from None


def _matches(pattern: str, text: str) -> bool:
    try:
        return _pattern(pattern).occurs_in(text)
    except FunctionError:
        return False


def _find_all(pattern: str, text: str, limit: int) -> list[str]:
    found = list(_pattern(pattern).all_in(text))
    return found if limit < 0 else found[:limit]


_FIND = Function(lambda pattern, text: next(iter(_pattern(pattern).all_in(text)), ""), "string string")
_FIND_ALL = Function(_find_all, "string string int")
_SPLIT = Function(lambda pattern, text, limit: _pattern(pattern).split(text, limit), "string string int")
_REPLACE = Function(lambda pattern, text, new: _pattern(pattern).replace(text, new), "string string string")
_REPLACE_LITERALLY = Function(
    lambda pattern, text, new: _pattern(pattern).replace_literally(text, new), "string string string"
)

_TRIM_ALL = Function(lambda signs, text: text.strip(signs) if signs else text, "string string")

_PATHS = {
    "base": Function(_base, "string"),
    "dir": Function(lambda path: _clean(path[: path.rindex("/") + 1] if "/" in path else ""), "string"),
    "clean": Function(_clean, "string"),
    "ext": Function(_extension, "string"),
    "isAbs": Function(lambda path: path.startswith("/"), "string"),
}

FUNCTIONS: dict[str, Function] = {
    # parts
    "trunc": Function(_trunc, "int string"),
    "substr": Function(_substr, "int int string"),
    "abbrev": Function(lambda width, text: text if width < 4 else _abbreviated(0, width, text), "int string"),
    "abbrevboth": Function(_abbrev_both, "int int string"),
    "trim": Function(lambda text: text.strip(_SPACE), "string"),
    "trimAll": _TRIM_ALL,
    "trimall": _TRIM_ALL,
    "trimPrefix": Function(lambda prefix, text: text.removeprefix(prefix), "string string"),
    "trimSuffix": Function(lambda suffix, text: text.removesuffix(suffix), "string string"),
    "hasPrefix": Function(lambda prefix, text: text.startswith(prefix), "string string"),
    "hasSuffix": Function(lambda suffix, text: text.endswith(suffix), "string string"),
    "contains": Function(lambda part, text: part in text, "string string"),
    "nospace": Function(lambda text: "".join(sign for sign in text if sign not in _SPACE), "string"),
    "initials": Function(lambda text: "".join(word[0] for word in text.split()), "string"),
    "replace": Function(lambda old, new, text: text.replace(old, new), "string string string"),
    "split": Function(lambda separator, text: _numbered(_split(separator, text)), "string string"),
    "splitn": Function(lambda separator, limit, text: _numbered(_split(separator, text, limit)), "string int string"),
    "splitList": Function(_split, "string string"),
    # lines
    "repeat": Function(_repeat, "int string"),
    "indent": Function(_indent, "int string"),
    "nindent": Function(lambda count, text: "\n" + _indent(count, text), "int string"),
    "wrap": Function(lambda width, text: _wrapped(width, text, "\n", breaks_words=False), "int string"),
    "wrapWith": Function(
        lambda width, new_line, text: _wrapped(width, text, new_line or "\n", breaks_words=True), "int string string"
    ),
    "cat": Function(lambda *values: " ".join(to_string(v) for v in values if v is not None), "...any"),
    "quote": Function(lambda *values: " ".join(quoted(to_string(v)) for v in values if v is not None), "...any"),
    "squote": Function(lambda *values: " ".join(f"'{to_string(v)}'" for v in values if v is not None), "...any"),
    "plural": Function(lambda one, many, count: one if count == 1 else many, "string string int"),
    # case
    "upper": Function(_upper, "string"),
    "lower": Function(_lower, "string"),
    "title": Function(_title, "string"),
    "untitle": Function(_untitle, "string"),
    "swapcase": Function(_swap_case, "string"),
    "snakecase": Function(lambda text: _lower_words(text, "_"), "string"),
    "kebabcase": Function(lambda text: _lower_words(text, "-"), "string"),
    "camelcase": Function(_camel_case, "string"),
    # paths
    **_PATHS,
    **{f"os{name[0].upper()}{name[1:]}": function for name, function in _PATHS.items()},
    # encodings
    "b64enc": Function(lambda text: base64.b64encode(text.encode()).decode(), "string"),
    "b64dec": Function(_b64decode, "string"),
    "b32enc": Function(lambda text: base64.b32encode(text.encode()).decode(), "string"),
    "b32dec": Function(_b32decode, "string"),
    "sha1sum": Function(_digest("sha1"), "string"),
    "sha256sum": Function(_digest("sha256"), "string"),
    "sha512sum": Function(_digest("sha512"), "string"),
    "adler32sum": Function(lambda text: str(zlib.adler32(text.encode())), "string"),
    # regular expressions
    "regexMatch": Function(_matches, "string string"),
    "mustRegexMatch": Function(lambda pattern, text: _pattern(pattern).occurs_in(text), "string string"),
    "regexFind": _FIND,
    "mustRegexFind": _FIND,
    "regexFindAll": _FIND_ALL,
    "mustRegexFindAll": _FIND_ALL,
    "regexSplit": _SPLIT,
    "mustRegexSplit": _SPLIT,
    "regexReplaceAll": _REPLACE,
    "mustRegexReplaceAll": _REPLACE,
    "regexReplaceAllLiteral": _REPLACE_LITERALLY,
    "mustRegexReplaceAllLiteral": _REPLACE_LITERALLY,
    "regexQuoteMeta": Function(lambda text: re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text), "string"),
}
