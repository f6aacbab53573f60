from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scripts.rounding import (
    NOISE,
    Measured,
    NumberError,
    Printed,
    difference,
    noise_of,
    print_like,
    read,
)

steady = settings(deadline=None, derandomize=True, max_examples=300)
values = st.floats(-1e9, 1e9, allow_subnormal=False)
noises = st.sampled_from([0.0, 1e-9, 1e-5, 1e-3])
places = st.integers(0, 6)


# The oracle counts in fractions and whole numbers only.


def nearest(x: Fraction, places: int) -> int:
    """Units in the last place, ties to even."""
    return round(x * Fraction(10) ** places)


def scientific(x: Fraction, places: int) -> tuple[int, int]:
    """Units in the last place of the mantissa, and the power of ten."""
    power = 0
    while abs(x) >= 10:
        x, power = x / 10, power + 1
    while x and abs(x) < 1:
        x, power = x * 10, power - 1
    units = nearest(x, places)
    return (units // 10, power + 1) if abs(units) == 10 ** (places + 1) else (units, power)


def spread(value: float, noise: float) -> list[Fraction]:
    exact = Fraction(value)
    return [exact, *(exact * (1 + sign * Fraction(noise)) for sign in (-1, 1))]


def plain(units: int, places: int, commas: bool = False) -> str:
    digits = str(abs(units)).zfill(places + 1)
    whole, rest = digits[: len(digits) - places], digits[len(digits) - places :]
    whole = f"{int(whole):,}" if commas else whole
    return "−" * (units < 0) + whole + "." * (places > 0) + rest


@steady
@given(value=values, noise=noises, places=places, commas=st.booleans())
@example(value=0.5, noise=0.0, places=0, commas=False)
@example(value=-0.004, noise=1e-5, places=2, commas=False)
@example(value=999.996, noise=1e-9, places=2, commas=True)
def test_one_text_is_right_or_none_where_noise_decides(
    value: float, noise: float, places: int, commas: bool
) -> None:
    right = {nearest(x, places) for x in spread(value, noise)}
    around = {units + step for units in right for step in range(-2, 3)}
    texts = {units: plain(units, places, commas) for units in around}
    accepted = {n for n, text in texts.items() if difference(text, (value, noise)) is None}
    assert accepted == (right if len(right) == 1 else set())


@steady
@given(value=st.floats(-2.0, 2.0), places=st.integers(0, 4), space=st.sampled_from(["", " "]))
def test_a_percentage_is_a_hundredth(value: float, places: int, space: str) -> None:
    right = {nearest(100 * x, places) for x in spread(value, NOISE)}
    around = {units + step for units in right for step in range(-2, 3)}
    texts = {units: f"{plain(units, places)}{space}%" for units in around}
    accepted = {n for n, text in texts.items() if difference(text, value) is None}
    assert accepted == (right if len(right) == 1 else set())


@steady
@given(
    value=st.one_of(values, st.floats(1e-30, 1e-9), st.floats(1e12, 1e40)),
    noise=noises,
    places=st.integers(0, 4),
    times=st.booleans(),
)
@example(value=9.996, noise=0.0, places=2, times=False)
@example(value=9.99505, noise=1e-5, places=2, times=False)
@example(value=0.0, noise=1e-5, places=1, times=True)
def test_one_scientific_text_is_right(value: float, noise: float, places: int, times: bool) -> None:
    def text(units: int, power: int) -> str:
        if times:
            raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
            return f"{plain(units, places)} × 10{raised}"
        return f"{plain(units, places)}e{power}"

    right = {scientific(x, places) for x in spread(value, noise)}
    around = {
        (units + step, power + shift)
        for units, power in right
        for step in (-1, 0, 1)
        for shift in (-1, 0, 1)
    }
    accepted = {pair for pair in around if difference(text(*pair), (value, noise)) is None}
    assert accepted == (right if len(right) == 1 else set())


@steady
@given(
    value=values,
    form=st.sampled_from(
        ["0", "0.00", "1,000", "1,000.000", "0.0e0", "1e-05", "0.00 × 10⁻²", "5 %"]
    ),
)
def test_what_is_printed_reads_as_the_value_that_it_prints(value: float, form: str) -> None:
    text = print_like(form, (value, 0.0))
    printed = read(text)
    assert abs(Fraction(printed.value) - Fraction(value)) <= Fraction(printed.unit) / 2
    assert print_like(text, (value, 0.0)) == text
    assert difference(text, (value, 0.0)) is None


@steady
@given(value=st.integers(-(10**15), 10**15), off=st.integers(1, 9))
def test_whole_numbers_carry_no_noise(value: int, off: int) -> None:
    assert difference(plain(value, 0), value) is None
    assert difference(plain(value, 0, commas=True), value) is None
    assert difference(plain(value + off, 0), value) == (
        f"printed {plain(value + off, 0)}, measured {plain(value, 0)}"
    )


@steady
@given(value=st.floats(0.01, 100.0), places=st.integers(1, 4))
def test_one_unit_is_allowed_on_a_gpu_and_two_are_not(value: float, places: int) -> None:
    right = nearest(Fraction(value), places)
    for off in (-2, -1, 0, 1, 2):
        text = plain(right + off, places)
        assert (difference(text, (value, 0.0), units=1) is None) == (abs(off) <= 1)
        assert (difference(text, (value, 0.0)) is None) == (off == 0)


FORMS = {
    ("0.0", -1.5): "−1.5",
    ("-0.0", -1.5): "-1.5",
    ("−0.0", 1.5): "1.5",
    ("+0.0", 1.5): "+1.5",
    ("+0.0", -1.5): "−1.5",
    ("−0.0", -0.001): "0.0",
    ("000.0", 1.5): "1.5",
    ("0", 38_000): "38000",
    ("1,000", 38_000): "38,000",
    ("1,000", 38): "38",
    ("0 %", 0.9402): "94 %",
    ("0.0%", 0.9402): "94.0%",
    ("0.0e0", 1.94e-22): "1.9e-22",
    ("1e-05", 0.5001): "5e-01",
    ("1e+5", 38_000): "4e+4",
    ("1.0E+05", 38_000): "3.8E+04",
    ("0.0 × 10⁰", 1.94e-22): "1.9 × 10⁻²²",
    ("0×10⁰", 38_000): "4×10⁴",
    (" 0.00 ", 0.6667): "0.67",
    ("0.00", (0.5004, 1e-3)): "0.50",
    ("0.000", 1e-9): "0.000",
    ("1,000", 1_234_567): "1,234,567",
    ("1,000,000.0", 38.04): "38.0",
    ("1,000.0e0", 38_000.0): "3.8e4",
    ("0.0e0", (9.96, 0.0)): "1.0e1",
    ("0.00e0", (9.996, 0.0)): "1.00e1",
    ("0.0 × 10⁰", (0.0996, 0.0)): "1.0 × 10⁻¹",
    ("0.0e0", 0.0): "0.0e0",
    ("0.0e0 %", 0.0): "0.0e0 %",
    ("1e+00", 1.0): "1e+00",
    ("1e-05", 1.0): "1e00",
    ("-0.0", -0.5): "-0.5",
    ("−0", -1.0): "−1",
    ("0.00", (0.125, 0.0)): "0.12",
    ("0.00", (0.375, 0.0)): "0.38",
    ("0.00", (1.5e300, 0.0)): f"{1.5e300:.2f}",
    ("0.0 × 10⁰", 1.23e13): "1.2 × 10¹³",
    ("0.0 × 10⁰", 4.56e56): "4.6 × 10⁵⁶",
    ("0.0 × 10⁰", 7.89e78): "7.9 × 10⁷⁸",
    ("0.0 × 10⁰", 9e-90): "9.0 × 10⁻⁹⁰",
}


@pytest.mark.parametrize(("form", "value"), FORMS, ids=str)
def test_a_value_is_printed_in_the_form_that_stands_there(form: str, value: object) -> None:
    text = FORMS[form, value]
    assert print_like(form, value) == text
    assert difference(text, value) is None


@pytest.mark.parametrize(
    "text",
    ["", ".5", "5.", "1,00", "1.0.0", "half", "0x10", "1e", "10⁻²", "1 000", "5%%", "--1", "∞"],
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(NumberError, match="is not a number: expected digits such as"):
        read(text)
    assert str(difference(text, 0.25)).endswith("measured 0.25")


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        True,
        None,
        "1",
        [],
        (1, 2, 3),
        (1.0, -1e-5),
        (1.0, 1),
        (1.0, True),
        (1.0, False),
        (1.0, "0.0"),
        (1.0, 0.1),
        (1.0, math.nan),
    ],
)
def test_what_is_no_measured_number_is_refused(value: object) -> None:
    with pytest.raises(NumberError, match=r"the (measured value|noise) ") as refused:
        Measured.of(value)
    if not isinstance(value, str):
        assert difference("1.0", value) == str(refused.value)
        assert difference("half", value) == str(refused.value)


def test_the_difference_tells_what_is_printed_and_what_was_measured() -> None:
    assert difference("0.998", 0.9971) == "printed 0.998, measured 0.997 (0.9971)"
    assert difference("94 %", 0.95) == "printed 94 %, measured 95 %"
    assert difference("0.67", 0.665) == (
        "printed 0.67 is on the edge of two roundings: the measured 0.665 is known to ±7e-06; "
        "print one digit more or fewer"
    )
    assert difference("0.6650000", 0.665) == (
        "printed 0.6650000 shows more digits than are stable: the measured 0.665 is known to "
        "±7e-06; print fewer"
    )
    assert difference("000.5", 0.5) == "printed 000.5, measured 0.5"
    assert difference(" 0.67 ", 0.6667) is None


NEAR = {  # printed, measured, units that are allowed
    ("0.125", 0.126, 1): True,
    ("0.127", 0.126, 1): True,
    ("0.124", 0.126, 1): False,
    ("0.124", 0.126, 2): True,
    ("0.126", 0.126, 0): True,
    ("1.9e-22", 2.0e-22, 1): True,
    ("94 %", 0.95, 1): True,
    ("4", 3, 1): False,  # a count
    ("3", 3, 1): True,
}


@pytest.mark.parametrize(("text", "value", "units"), NEAR)
def test_so_many_units_are_allowed_in_the_last_place(text: str, value: float, units: int) -> None:
    measured = value if isinstance(value, int) else (value, 0.0)
    assert (difference(text, measured, units) is None) == NEAR[text, value, units]


READ = {
    "1.9 × 10⁻²²": ("1.9e-22", "1e-23"),
    "38×10³": ("38000", "1000"),
    "−1,234.50": ("-1234.5", "0.01"),
    "-1.9E+04": ("-19000", "1000"),
    "+7": ("7", "1"),
    "94.2 %": ("0.942", "0.001"),
    "0": ("0", "1"),
}


@pytest.mark.parametrize("text", READ)
def test_a_number_is_read_with_one_unit_of_its_last_place(text: str) -> None:
    value, unit = READ[text]
    assert read(text) == Printed(Decimal(value), Decimal(unit))


def test_the_noise_is_relative_and_a_count_has_none() -> None:
    assert noise_of(2.0) == pytest.approx(1e-5, rel=1e-12)
    assert noise_of((4.0, 1e-3)) == pytest.approx(1e-3, rel=1e-12)
    assert noise_of((-4.0, 1e-3)) == pytest.approx(1e-3, rel=1e-12)
    assert (noise_of(3), noise_of(0.0), noise_of(0)) == (0.0, 0.0, 0.0)


UNSTABLE = {  # printed, measured, absolute noise; half a unit in the last place is 0.05, 0.5, 5
    ("1.0", 5.25, 0.045): False,
    ("1.0", 5.25, 0.055): True,
    ("1", 8.5, 0.45): False,
    ("1", 8.5, 0.55): True,
    ("1.0e0", 825.0, 4.5): False,
    ("1.0e0", 825.0, 5.5): True,
}


@pytest.mark.parametrize(("text", "value", "noise"), UNSTABLE)
def test_digits_are_unstable_where_the_noise_is_more_than_half_a_unit(
    text: str, value: float, noise: float
) -> None:
    told = difference(text, (value, noise / value))
    expected = "shows more digits than are stable" if UNSTABLE[text, value, noise] else "is on the"
    assert str(told).startswith(f"printed {text} {expected}"), told


@pytest.mark.parametrize("word", ["KeyError", "0.5 s", "a b", "torch.bfloat16", "−∞", "(0.5)"])
def test_a_measured_word_stands_as_it_is(word: str) -> None:
    assert print_like("anything", word) == word
    assert difference(word, word) is None
    assert difference("TypeError", word) == f"printed TypeError, measured {word}"
    assert difference(f" {word}", word) == f"printed  {word}, measured {word}"


@pytest.mark.parametrize("text", ["0.5", " 0.5", "0.5 ", "1,000", "7 %", "1e-5", "2 × 10⁵"])
def test_a_measured_word_is_no_number(text: str) -> None:
    message = f"the measured value is the text {text!r}: return the number, so that it is rounded"
    with pytest.raises(NumberError, match=f"^{re.escape(message)}$"):
        print_like("0.5", text)
    assert difference(text, text) == message


@pytest.mark.parametrize(
    "text", ["", " ", " a", "a ", *(f"a{character}b" for character in "<>&|*`[]\\\0\n\t\x1f")]
)
def test_a_measured_word_has_no_markup(text: str) -> None:
    message = (
        f"the measured text {text!r} cannot stand in a page: return words without markup, "
        "line breaks or spaces at the ends"
    )
    with pytest.raises(NumberError, match=f"^{re.escape(message)}$"):
        print_like("a", text)
    assert difference(text, text) == message
