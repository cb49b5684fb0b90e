"""The names that other packages may import from this one, and the module of each."""

from .annif import CorpusDirectory as CorpusDirectory
from .annif import is_fasttext as is_fasttext
from .dataset import N_IDS_MAX as N_IDS_MAX
from .dataset import first_labels as first_labels
from .dataset import renumbered as renumbered
from .files import JSON_LINES as JSON_LINES
from .files import find_files as find_files
from .files import kind_of as kind_of
from .files import open_data as open_data
from .files import source_of as source_of
from .json_lines import RowCollector as RowCollector
from .npz_pair import partner as partner
from .reader import STDIN as STDIN
from .reader import DataStream as DataStream
from .reader import blocks_of_texts as blocks_of_texts
from .reader import check_readable as check_readable
from .reader import open_texts as open_texts
from .reader import read_dataset as read_dataset
from .reader import read_texts as read_texts
from .skos import read_subjects as read_subjects
from .sparse_text import read_label_names as read_label_names
from .stream import DataFile as DataFile
from .stream import open_unpacked as open_unpacked
from .tables import TableLines as TableLines
from .tables import check_installed as check_installed
from .tables import guess_columns as guess_columns
