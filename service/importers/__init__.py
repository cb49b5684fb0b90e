"""Models that other libraries trained, read from their own files.

Only the command line imports this package: the service never reads a foreign file.
"""

from service.importers.registry import IMPORTERS, import_model

__all__ = ["IMPORTERS", "import_model"]
