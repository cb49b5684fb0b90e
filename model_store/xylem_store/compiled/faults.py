"""What keeps kernels from being loaded: without numba, so that the command line can tell it."""


class BadProcessor(ValueError):
    """A level of processors that is none, or that this machine cannot
    run: no kernel can be loaded for it.

    What needs kernels cannot even be imported.
    """
