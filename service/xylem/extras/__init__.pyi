"""What others may use of this package, and the module that each name is in."""

from .importers.registry import import_model as import_model
from .importers.registry import text_draft as text_draft
from .importers.vectorizer import read_vectorizer as read_vectorizer
