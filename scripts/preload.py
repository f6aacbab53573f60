"""What every page run needs, imported once in the process that all runs are forked from."""

import gc

gc.disable()  # imports make no garbage worth looking for, and looking costs a tenth of them

import matplotlib.backends.backend_agg  # noqa: E402
import matplotlib.backends.backend_svg  # noqa: E402, F401
import numpy.random  # noqa: E402, F401

import scripts.worker  # noqa: E402, F401

gc.freeze()  # a collection in a forked process would copy all that it looks at
gc.enable()
