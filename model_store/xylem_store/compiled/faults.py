"""The error that keeps kernels from being loaded; without numba, for use by the command line."""


class BadProcessor(ValueError):
    """A level of processors that does not exist, or that this machine cannot run.

    No kernel can be loaded for it, and modules that need kernels cannot even be imported.
    """
