"""The names that other packages may import from this one, and the module of each."""

from .candidates import NAME_FEATURES as NAME_FEATURES
from .concepts import Concepts as Concepts
from .concepts import concepts_of as concepts_of
from .concepts import read_concepts as read_concepts
from .featurizers import featurizer_of as featurizer_of
from .featurizers import matcher_of as matcher_of
from .matching import NameMatcher as NameMatcher
from .names import NameParameters as NameParameters
from .names import WordFrequencies as WordFrequencies
from .names import build_names as build_names
from .names import count_words as count_words
from .names import kept_frequencies as kept_frequencies
