"""The names that other packages may import from this one, and the module of each."""

from .importers.registry import import_model as import_model
from .importers.registry import text_draft as text_draft
from .importers.vectorizer import read_vectorizer as read_vectorizer
