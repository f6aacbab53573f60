"""What the page on printed numbers runs."""

COUNT = 4


def example_kinds():
    print(f"1 of {COUNT} is {1 / COUNT:.0%}")
    return {
        "share": 0.9402,
        "tokens": 38_000,
        "small": 1.94e-22,
        "below": -1.4996,
        "rough": (0.5004, 1e-3),
        "refusal": "ValueError",
    }


def table_powers():
    rows = [{"n": str(n), "10 to the n": f"{10**n:,}"} for n in range(1, 5)]
    return rows, {"largest": 10**4}
