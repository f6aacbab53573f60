"""What the page on doubling runs."""

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from snippets.tiny import double


def example_doubled():
    x = torch.tensor(1 / 3, dtype=torch.float64)
    y = double(x)
    print(f"twice {x:.3f} is {y:.3f}")
    return {"third": y.item()}


def table_doubles():
    return [{"x": "one", "twice x": 2}, {"x": "two", "twice x": 4}]


def figure_line() -> Figure:
    """A straight line that rises from zero."""
    figure, axes = plt.subplots()
    axes.plot([0, 1], [0, 2])
    axes.axis("off")
    return figure
