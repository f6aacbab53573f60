# ---
# description: A line that rises.
# tags: [test]
# needs: [core/tiny]
# ---

# %% [markdown]
# # A line that rises
#
# Half of three is <data value="half.three">1.50</data>, and the formula is
# $y = x / 2$. See [doubling](../core/tiny.md).

# %%
import matplotlib.pyplot as plt
import torch

x = torch.arange(4, dtype=torch.float64)
y = x / 2
half = {"three": y[3].item(), "steps": y}
print(f"{y[3]:.2f} < 3")

# %% [markdown]
# ## The picture

# %% figure="line" alt="A straight \"line\" that rises from zero."
plt.plot(x, y)

# %% table="halves"
rows = [{"x": f"{a:g}", "half": f"{b:g}"} for a, b in zip(x, y, strict=True)]
