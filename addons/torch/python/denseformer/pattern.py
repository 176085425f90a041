"""Depth patterns: which earlier outputs the average after each block reads.

The forms and messages of the engine's parser (src/model/depth_forms.cc), so that they do not depend
on the compiled library; a test compares the two.
"""

import os
import re
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

Sources = List[List[int]]
"""The sources of the module after each depth 0..n_blocks, ascending; none at depth 0."""

Pattern = Union[str, "os.PathLike[str]", Sequence[Sequence[int]]]
"""A form such as ``"4x5"``, the path of a mask file, or for each block the outputs that it reads."""

_MOST_BYTES = 64 << 20  # of a mask file


class _Arguments(NamedTuple):
    """What stands in a spec in place of the letters of its form."""

    spec: str
    depth: int
    k: int = 1
    p: int = 1
    rows: str = ""


def _wrong(spec: str, why: str) -> ValueError:
    return ValueError(f"denseformer: depth pattern '{spec}': {why}")


def _periods(a: _Arguments, whole: bool = False) -> range:
    """The depths that P divides."""
    if a.p > a.depth:
        why = f"period P = {a.p} is larger than the depth {a.depth}, so there would be no module"
        raise _wrong(a.spec, why)
    if whole and a.depth % a.p != 0:
        raise _wrong(a.spec, f"period P = {a.p} does not divide the depth {a.depth}")
    return range(a.p, a.depth + 1, a.p)


_Made = Mapping[int, Sequence[int]]  # depth -> sources, where there is a module


def _none(a: _Arguments) -> _Made:
    return {}


def _dilated(a: _Arguments) -> _Made:
    return {i: range(i % a.k, i + 1, a.k) for i in _periods(a)}


def _grouped(a: _Arguments) -> _Made:
    return {i: range(i // a.p % a.k * a.p, i + 1, a.k * a.p) for i in _periods(a, whole=True)}


def _last(a: _Arguments) -> _Made:
    return {i: [0, *range(max(1, i - a.k + 1), i + 1)] for i in range(1, a.depth + 1)}


def _final(a: _Arguments) -> _Made:
    return {a.depth: [0, *_periods(a, whole=True)]}


def _mask(a: _Arguments) -> _Made:
    return _parse_mask(a.rows.replace("/", "\n"), a.depth, "mask")


# K and P stand for whole numbers of up to six digits, ROWS for the rest of the spec.
_FORMS: Tuple[Tuple[str, str, Callable[[_Arguments], _Made]], ...] = (
    ("none", "", _none),
    ("KxP", " (such as 1x1 or 4x5)", _dilated),
    ("grouped:KxP", "", _grouped),
    ("last:K", "", _last),
    ("final", "", _final),
    ("final:P", "", _final),
    ("mask:ROWS", "", _mask),
)
_LETTERS = {"K": "(?P<k>[0-9]{1,6})", "P": "(?P<p>[0-9]{1,6})", "ROWS": "(?P<rows>.*)"}


def _form_list() -> str:
    # Users give the file that a mask comes from.
    listed = [form + note for form, note, _ in _FORMS if "ROWS" not in form]
    return ", ".join(listed) + " or a mask file"


def _match(spec: str, depth: int) -> Optional[Tuple[Callable[[_Arguments], _Made], _Arguments]]:
    for form, _, make in _FORMS:
        expression = re.sub("ROWS|K|P", lambda letter: _LETTERS[letter.group()], form)
        found = re.fullmatch(expression, spec, re.DOTALL)
        if found:
            parts = found.groupdict()
            numbers = {name: int(parts[name]) for name in ("k", "p") if name in parts}
            return make, _Arguments(spec, depth, rows=parts.get("rows", ""), **numbers)
    return None


def _parse_mask_row(digits: str, depth: int, i: int) -> List[int]:
    sources: List[int] = []
    column = 0
    for c in digits:
        if c in " ,\t\r":
            continue
        if c not in "01":
            shown = c if c.isprintable() else repr(c)[1:-1]
            raise ValueError(f"unexpected character '{shown}', expected 0 or 1")
        if c == "1":
            if column > i:
                raise ValueError(
                    f"block {i} cannot read X_{column}: only outputs up to X_{i} exist (the mask "
                    "must be lower triangular)"
                )
            sources.append(column)
        column += 1
        if column > depth + 1:
            raise ValueError(f"more than {depth + 1} columns")
    if sources and sources[-1] != i:
        raise ValueError(f"block {i} must read its own output X_{i} where it reads anything")
    return sources


def _parse_mask(text: str, depth: int, name: str) -> _Made:
    made = {}
    row = 0
    for number, line in enumerate(text.split("\n"), 1):
        digits = line.strip(" \t\r\n\v\f")
        if not digits or digits[0] == "#":
            continue
        row += 1
        try:
            if row > depth:
                raise ValueError(f"more rows than the {depth} blocks of the model")
            made[row] = _parse_mask_row(digits, depth, row)
        except ValueError as error:
            raise ValueError(f"denseformer: {name}:{number}: {error}") from None
    if row != depth:
        raise ValueError(f"denseformer: {name}: {row} rows, expected {depth} (one per block)")
    return made


def _read_mask(path: str, depth: int) -> _Made:
    if not os.path.isfile(path):
        missing = "; there is no file of that name" if "/" in path or "." in path else ""
        raise _wrong(path, f"expected {_form_list()}{missing}")
    with open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        size = max(len(content), os.path.getsize(path))
        raise ValueError(f"denseformer: {path}: {size} bytes, expected at most {_MOST_BYTES}")
    return _parse_mask(content.decode("utf-8", "replace"), depth, path)


def _parse(spec: str, depth: int) -> _Made:
    """Of a form, whatever files of that name exist; else of the mask in the file of that name."""
    match = _match(spec, depth)
    if match is None:
        return _read_mask(spec, depth)
    make, arguments = match
    for name, value in (("K", arguments.k), ("P", arguments.p)):
        if value == 0:
            raise _wrong(spec, f"{name} is 0, expected at least 1")
    return make(arguments)


def pattern_sources(n_blocks: int, pattern: Pattern) -> Sources:
    """The sources of every depth; ``ValueError`` says what is wrong with a pattern."""
    if n_blocks < 1:
        raise ValueError(f"denseformer: n_blocks is {n_blocks}, expected at least 1")
    if isinstance(pattern, (str, os.PathLike)):
        made = _parse(os.fspath(pattern), n_blocks)
        return [list(made.get(i, ())) for i in range(n_blocks + 1)]
    rows = [[]] + [sorted(int(j) for j in row) for row in pattern]
    if len(rows) != n_blocks + 1:
        raise ValueError(f"denseformer: sources of {len(rows) - 1} blocks, expected {n_blocks}")
    for i, row in enumerate(rows):
        if row and (row[0] < 0 or row[-1] != i or len(set(row)) != len(row)):
            raise ValueError(
                f"denseformer: sources {row} after block {i}, expected different numbers from 0 "
                f"to {i}, and {i} among them"
            )
    return rows


def pattern_spec(n_blocks: int, pattern: Pattern) -> str:
    """The pattern as a form that depends on no file: what a configuration holds."""
    sources = pattern_sources(n_blocks, pattern)
    if isinstance(pattern, str) and _match(pattern, n_blocks):
        return pattern
    rows = []
    for i in range(1, n_blocks + 1):
        rows.append("".join("1" if j in sources[i] else "0" for j in range(i + 1)))
    return "mask:" + "/".join(rows)


def dilated_sources(n_blocks: int, dilation: int, period: int) -> List[List[int]]:
    """For each block what it reads; as ``KxP``, but a period beyond the depth means no average."""
    for name, value in (("dilation", dilation), ("period", period)):
        if value < 1:
            raise ValueError(f"denseformer: {name} is {value}, expected at least 1")
    return [
        list(range(i % dilation, i + 1, dilation)) if i % period == 0 else []
        for i in range(1, n_blocks + 1)
    ]
