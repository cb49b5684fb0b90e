"""Read a vectorizer from a file of skops.

The file is a zip archive of schema.json, a tree of typed nodes, and .npy files. skops itself
imports the classes that a file names. Here nodes are read as data: only those of the kinds and
types in _NODES; no name is imported, nothing is called.
"""

import io
import zipfile
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from xylem.base import BadModel, what_is
from xylem.extras.importers.files import ModelFile

MEMBER_BYTES_MAX = 1 << 30  # the most bytes of a file in an archive, unpacked

# The most bytes of a file with one number, unpacked: a header and the number.
SCALAR_BYTES_MAX = 1 << 11

# The most files in an archive: a vocabulary cut by max_features has a file for each term.
MEMBERS_MAX = 1 << 24

PROTOCOLS = range(3)  # the versions of the format that are read: those of skops 0.2 to 0.16
_SCHEMA = "schema.json"

_VECTORIZERS = ("TfidfVectorizer", "CountVectorizer", "TfidfTransformer")

# The kinds of nodes that are read: the type of its content in JSON, and the classes it may name.
_NODES: dict[str, tuple[type, list[str]]] = {
    "JsonNode": (str, ["builtins.str"]),
    "ListNode": (list, ["builtins.list"]),
    "TupleNode": (list, ["builtins.tuple"]),
    "DictNode": (dict, ["builtins.dict"]),
    "NdArrayNode": (str, ["numpy.ndarray", "numpy.int32", "numpy.int64"]),
    "ObjectNode": (dict, [f"sklearn.feature_extraction.text.{name}" for name in _VECTORIZERS]),
}

# Options that decide how a text becomes a row.
#
# The others tell how files are read, or how the vocabulary was chosen.
_OPTIONS = (
    *(
        "analyzer",
        "binary",
        "lowercase",
        "ngram_range",
        "preprocessor",
        "strip_accents",
        "token_pattern",
    ),
    *("tokenizer", "norm", "use_idf", "smooth_idf", "sublinear_tf"),
)


def read_skops(file: ModelFile) -> dict[str, Any]:
    """Return the vectorizer in a file of skops, as the fields of the JSON of docs/importing.md.

    Raises BadModel for an archive or node that is not as skops writes it, for a type that is not in
    _NODES, and for the name of scikit-learn's own list of stop words if its words are needed.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
            return _Skops(file, archive).vectorizer()
    except (BadModel, MemoryError):
        raise
    except Exception as error:  # zipfile and zlib have no common base for "damaged"
        raise file.fault("a whole file of skops", f"damage: {error}") from error


class _Skops:
    """A reader of the nodes of an open archive. Methods raise BadModel; `place` is for messages."""

    def __init__(self, file: ModelFile, archive: zipfile.ZipFile) -> None:
        self._file = file
        self._archive = archive

    def vectorizer(self) -> dict[str, Any]:
        """Return the fields of the vectorizer that is the archive's root."""
        n_members = len(self._archive.infolist())
        self._file.expect(n_members <= MEMBERS_MAX, f"at most {MEMBERS_MAX} files in it", n_members)
        root = self._file.json_object(self._member(_SCHEMA, MEMBER_BYTES_MAX), f" in {_SCHEMA}")
        protocol = root.get("protocol")
        self._file.expect(
            type(protocol) is int and protocol in PROTOCOLS,
            f"a protocol from 0 to {PROTOCOLS[-1]}, which this release knows",
            what_is(protocol),
        )
        fields = self._fields(root, "the root")
        params = {name: self._value(fields[name], name) for name in _OPTIONS if name in fields}
        self._file.expect("vocabulary_" in fields, "a vectorizer that was fitted", "no vocabulary_")
        vocabulary = self._value(fields["vocabulary_"], "vocabulary_")
        return {
            "class": root["__class__"],
            "params": params,
            "stop_words": self._stop_words(fields, params),
            "vocabulary": vocabulary,
            "idf": self._idf(fields) if params.get("use_idf") is True else [],
        }

    def _member(self, name: str, bytes_max: int) -> bytes:
        """Return the bytes of a file of the archive; the checksum is verified."""
        try:
            info = self._archive.getinfo(name)
        except KeyError as error:
            raise self._file.fault(f"{name} in the archive", "none") from error
        self._file.expect(
            info.file_size <= bytes_max, f"at most {bytes_max} bytes in {name}", info.file_size
        )
        self._file.expect(
            info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
            f"{name} to be stored or deflated",
            f"method {info.compress_type}",
        )
        return self._archive.read(info)

    def _content(self, node: Any, place: str, *loaders: str) -> Any:
        """Return the content of a node; for an array, the name of its file.

        loaders  the kinds of nodes that are allowed here

        Raises BadModel for a node of another kind, or of a type that is not in _NODES.
        """
        self._file.expect(type(node) is dict, f"{place} to be a node", what_is(node))
        loader = node.get("__loader__")
        type_name = f"{node.get('__module__')}.{node.get('__class__')}"
        kind, types = _NODES[loader if loader in loaders else loaders[0]]
        self._file.expect(
            loader in loaders and type_name in types,
            f"{place} to be {' or '.join(loaders)} of a type that is read",
            f"{loader} of {type_name}",
        )
        key = "file" if loader == "NdArrayNode" else "content"
        content = node.get(key)
        self._file.expect(
            type(content) is kind, f"{key} of {place} to be a {kind.__name__}", what_is(content)
        )
        return content

    def _fields(self, node: object, place: str) -> dict[str, Any]:
        """Return the attributes of an object, as nodes by name."""
        content = self._content(node, place, "ObjectNode")
        return dict(self._content(content, f"the fields of {place}", "DictNode"))

    def _value(self, node: object, place: str) -> Any:
        """Return a scalar, a list of scalars, or a dict of scalars by text."""
        loader = node.get("__loader__") if isinstance(node, dict) else None
        if loader in ("ListNode", "TupleNode"):
            return [
                self._scalar(element, place)
                for element in self._content(node, place, "ListNode", "TupleNode")
            ]
        if loader == "DictNode":
            return {
                key: self._scalar(element, place)
                for key, element in self._content(node, place, "DictNode").items()
            }
        return self._scalar(node, place)

    def _scalar(self, node: object, place: str) -> Any:
        """Return a text, number, truth value or None; an integer of numpy has a file of its own."""
        if isinstance(node, dict) and node.get("__loader__") == "NdArrayNode":
            array = self._array(node, place, SCALAR_BYTES_MAX)
            self._file.expect(
                array.ndim == 0 and array.dtype.kind == "i",
                f"{place} to be an integer",
                f"{array.dtype}{list(array.shape)}",
            )
            return int(array)
        text = self._content(node, place, "JsonNode")
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise self._file.fault(f"{place} to be JSON", what_is(text)) from error
        self._file.expect(
            value is None or type(value) in (bool, int, float, str),
            f"{place} to be a text, number, truth value or null",
            what_is(value),
        )
        return value

    def _array(self, node: object, place: str, bytes_max: int) -> NDArray[Any]:
        name = self._content(node, place, "NdArrayNode")
        data = io.BytesIO(self._member(name, bytes_max))
        try:
            array: NDArray[Any] = np.lib.format.read_array(data, allow_pickle=False)
        except (ValueError, MemoryError) as error:
            raise self._file.fault(f"{name} to be a .npy file of numbers", error) from error
        return array

    def _idf(self, fields: dict[str, Any]) -> list[float]:
        transformer = self._fields(fields.get("_tfidf"), "_tfidf")
        self._file.expect(
            "idf_" in transformer, "idf_, as scikit-learn 1.5 and newer write it", "none"
        )
        array = self._array(transformer["idf_"], "idf_", MEMBER_BYTES_MAX)
        self._file.expect(
            array.ndim == 1 and array.dtype.kind == "f",
            "idf_ to be numbers in one dimension",
            f"{array.dtype}{list(array.shape)}",
        )
        return [*array.tolist()]

    def _stop_words(self, fields: dict[str, Any], params: dict[str, Any]) -> list[Any]:
        """Return the list of stop words.

        scikit-learn's own list is in the file by its name only. Then the words must not be needed,
        and the list returned is empty: either the analyzer is not "word", so that scikit-learn
        ignores them, or the vocabulary was learned without them and there are no n-grams that they
        would separate. Otherwise raises BadModel.
        """
        value = self._value(fields.get("stop_words"), "stop_words")
        if value is None:
            return []
        if isinstance(value, list):
            return value
        is_word = params.get("analyzer") == "word"
        is_fixed = self._value(fields.get("fixed_vocabulary_"), "fixed_vocabulary_")
        self._file.expect(
            not is_word or (params.get("ngram_range") == [1, 1] and is_fixed is False),
            "stop_words to be a list, as n-grams or a given vocabulary depend on them "
            "(docs/importing.md: in JSON they are one)",
            what_is(value),
        )
        return []
