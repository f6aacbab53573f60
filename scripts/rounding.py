"""When a printed number is right, and how a measured value is printed in its place.

A printed number is right when it is the measured value, correctly rounded at the precision
printed, give or take the value's float noise. Exactly one text is right at each precision: a value
so close to the edge between two roundings that noise decides is refused. A measured text, such as
the name of an error, is right when it stands there as it is.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

NOISE = 1e-5
_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_BACK = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_FORM = re.compile(
    r"(?P<sign>[-−+]?)(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<places>\d+))?"
    r"(?:(?P<e>[eE])(?P<exponent>[-+]?\d+)|(?P<times>\s?×\s?10)(?P<power>⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
    r"(?P<percent>\s?%)?"
)
_MARKUP = re.compile(r"[<>&|*`\[\]\\\x00-\x1f]")


class NumberError(ValueError):
    """A printed text or a measured value that is no number of the kind that pages print."""


@dataclass(frozen=True)
class Measured:
    """A finite measured value and the relative float noise that it may carry."""

    value: Decimal
    noise: Decimal

    @classmethod
    def of(cls, given: object) -> Measured:
        """Take what a page module returned: an int, a float, or ``(float, relative noise)``."""
        value, noise = (
            given if isinstance(given, (tuple, list)) and len(given) == 2 else (given, None)
        )
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise NumberError(
                f"the measured value is {value!r}, no number: "
                "return an int or a float (a tensor's .item())"
            )
        if not math.isfinite(value):
            raise NumberError(f"the measured value is {value}: return a finite number")
        if noise is None:
            noise = 0.0 if isinstance(value, int) else NOISE
        if isinstance(noise, bool) or not isinstance(noise, (int, float)) or not 0 <= noise < 0.1:
            raise NumberError(f"the noise {noise!r} is not a relative float noise in [0, 0.1)")
        return cls(Decimal(value), abs(Decimal(value)) * Decimal(noise))


@dataclass(frozen=True)
class Printed:
    """A printed number: its value and one unit in the last printed place."""

    value: Decimal
    unit: Decimal


def _match(text: str) -> re.Match[str]:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise NumberError(
            f"printed {text!r} is not a number: expected digits such as 0.998, −1.5, 38,000, "
            "94 %, 1.9e-22 or 1.9 × 10⁻²² (write 0.000 to have three places filled in)"
        )
    return match


def _exponent(match: re.Match[str]) -> int:
    if match["power"]:
        return int(match["power"].translate(_SUPERSCRIPTS))
    return int(match["exponent"] or 0)


def noise_of(given: object) -> float:
    """The relative float noise that a measured number may carry."""
    measured = Measured.of(given)
    return float(measured.noise / abs(measured.value)) if measured.value else 0.0


def read(text: str) -> Printed:
    """Read a printed number; raises ``NumberError`` where the text is none."""
    match = _match(text)
    places = len(match["places"] or "")
    digits = match["whole"].replace(",", "") + ("." + match["places"] if places else "")
    shift = _exponent(match) - (2 if match["percent"] else 0)
    value = Decimal(digits).scaleb(shift)
    return Printed(
        -value if match["sign"] in ("-", "−") else value, Decimal(1).scaleb(shift - places)
    )


def print_like(text: str, given: object) -> str:
    """Print the measured value in the form and to the precision of ``text``.

    Raises ``NumberError`` where noise would decide the last digit, or where there is no number.
    """
    if isinstance(given, str):
        return _words(given)
    match, measured = _match(text), Measured.of(given)
    places = len(match["places"] or "")
    percent = 2 if match["percent"] else 0
    scientific = bool(match["e"] or match["times"])
    with localcontext(Context(prec=400)):
        value, noise = measured.value.scaleb(percent), measured.noise.scaleb(percent)
        rounded, exponent = _round(value, places, scientific)
        if any(
            _round(value + e, places, scientific) != (rounded, exponent) for e in (noise, -noise)
        ):
            raise NumberError(
                _edge(text, measured, noise > Decimal(5).scaleb(exponent - places - 1))
            )
        mantissa = abs(rounded).scaleb(-exponent)
        digits = f"{mantissa:{',' if ',' in match['whole'] else ''}.{places}f}"
    sign = "+" if match["sign"] == "+" else ""
    if rounded < 0:
        sign = "-" if match["sign"] == "-" else "−"
    if match["e"]:
        shown = match["exponent"]
        width = len(shown.lstrip("+-"))
        plus = "+" if shown[0] == "+" else ""
        digits += match["e"] + ("-" if exponent < 0 else plus) + str(abs(exponent)).zfill(width)
    elif match["times"]:
        digits += match["times"] + str(exponent).translate(_BACK)
    return sign + digits + (match["percent"] or "")


def _words(given: str) -> str:
    """Return a measured text as it is printed: itself, where it is plain and no number."""
    if _FORM.fullmatch(given.strip()):
        raise NumberError(
            f"the measured value is the text {given!r}: return the number, so that it is rounded"
        )
    if given != given.strip() or not given or _MARKUP.search(given):
        raise NumberError(
            f"the measured text {given!r} cannot stand in a page: return words without markup, "
            "line breaks or spaces at the ends"
        )
    return given


def _round(value: Decimal, places: int, scientific: bool) -> tuple[Decimal, int]:
    """Round to so many places; also give the power of ten that stands behind the number."""
    exponent = value.adjusted() if scientific and value else 0
    rounded = round(value, places - exponent)  # ties to even
    if scientific and rounded.adjusted() > exponent:  # 9.96 is 1.0 × 10¹
        exponent += 1
    return rounded, exponent


def _edge(text: str, measured: Measured, unstable: bool) -> str:
    what = f"the measured {float(measured.value):.10g} is known to ±{float(measured.noise):.1g}"
    if unstable:
        return f"printed {text} shows more digits than are stable: {what}; print fewer"
    return f"printed {text} is on the edge of two roundings: {what}; print one digit more or fewer"


def difference(text: str, given: object, units: int = 0) -> str | None:
    """Say how the printed text differs from the measured value, or give None where it is right.

    ``units`` in the last printed place are allowed (one on a GPU, none on a CPU).
    """
    if isinstance(given, str):
        return _text_difference(text, given)
    try:
        value = Measured.of(given).value
    except NumberError as error:
        return str(error)
    try:
        printed = read(text)
    except NumberError as error:
        return f"{error}; measured {float(value):.10g}"
    try:
        right = print_like(text, given)
    except NumberError as error:
        return str(error)
    near = units and not isinstance(given, int)  # a count is exact on every device
    if text.strip() == right or (
        near and abs(printed.value - read(right).value) <= units * printed.unit
    ):
        return None
    exact = f" ({float(value):.10g})" if Decimal(str(float(value))) != read(right).value else ""
    return f"printed {text}, measured {right}{exact}"


def _text_difference(text: str, given: str) -> str | None:
    try:
        right = _words(given)
    except NumberError as error:
        return str(error)
    return None if text == right else f"printed {text}, measured {right}"
