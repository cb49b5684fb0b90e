"""Models and vectorizers of other libraries, read from their own files.

Only the command line imports this package: the service never reads a foreign file.
"""

from service.importers.registry import IMPORTERS, import_model, publish_with_texts
from service.importers.vectorizer import read_vectorizer

__all__ = ["IMPORTERS", "import_model", "publish_with_texts", "read_vectorizer"]
