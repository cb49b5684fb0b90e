"""The names that other packages may import from this one, and the module of each."""

from .combine import CombineRequest as CombineRequest
from .combine import combine_and_publish as combine_and_publish
from .combine import combine_dataset as combine_dataset
from .combine import unranked_version as unranked_version
from .concepts import read_concepts as read_concepts
from .featurizers import featurizer_of as featurizer_of
from .folds import ROW_DIGESTS as ROW_DIGESTS
from .label_info import note_without_concept as note_without_concept
from .label_info import read_label_info as read_label_info
from .matching import NameMatcher as NameMatcher
from .near_rows import ALIKE as ALIKE
from .new_members import with_members as with_members
from .new_vocabulary import VocabularyRequest as VocabularyRequest
from .new_vocabulary import set_vocabulary as set_vocabulary
from .ranker import check_installed as check_installed
from .reranking import rerank as rerank
