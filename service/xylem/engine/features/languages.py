"""The languages of stemmers, lemmas and stop words, by their ISO 639-1 codes.

The libraries are imported only when they are used: snowballstemmer for stems, simplemma for lemmas,
stop-words for lists of stop words. `pip install 'xylem-serve[languages]'` installs them.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from xylem.base import BadData, BadParameter, fault, refuse_special, unknown

EXTRA = "pip install 'xylem-serve[languages]'"

# The languages' English names, as the libraries use them, by code.
_NAME_PAIRS = (
    "ar=arabic bg=bulgarian ca=catalan cs=czech da=danish de=german el=greek en=english "
    "eo=esperanto "
    "es=spanish et=estonian eu=basque fa=persian fi=finnish fr=french ga=irish gu=gujarati "
    "he=hebrew "
    "hi=hindi hu=hungarian hy=armenian id=indonesian it=italian ja=japanese ko=korean "
    "lt=lithuanian "
    "ms=malaysian nb=norwegian ne=nepali nl=dutch pl=polish pt=portuguese ro=romanian ru=russian "
    "sk=slovak sr=serbian st=sesotho sv=swedish ta=tamil tr=turkish uk=ukrainian "
    "vi=vietnamese yi=yiddish "
    "zh=chinese"
)
_NAMES = dict(pair.split("=") for pair in _NAME_PAIRS.split(" "))

# The languages that snowballstemmer stems: its names, by code.
_STEMMER_CODES = (
    "ar ca cs da de el en eo es et eu fa fi fr ga hi hu hy id it lt nb ne nl pl "
    "pt ro ru sr st sv ta tr yi"
)
STEMMERS = {code: _NAMES[code] for code in _STEMMER_CODES.split(" ")}

# The codes of the languages of simplemma, but for those without a code of two letters.
_LEMMA_CODES = (
    "ar bg ca cs cy da de el en eo es et fa fi fr ga gd gl gv he hi hu hy id is it ka la lb "
    "lt lv mk ml ms "
    "nb nl nn pl pt ro ru se sk sl sq sv sw tl tr uk"
)
LEMMAS = tuple(_LEMMA_CODES.split(" "))

# The languages for which stop-words has a list: its names, by code.
_STOP_LIST_CODES = (
    "ar bg ca cs da de el en es fa fi fr gu he hi hu id it ja ko ms nb nl pl "
    "pt ro ru sk sv tr uk vi zh"
)
STOP_LISTS = {code: _NAMES[code] for code in _STOP_LIST_CODES.split(" ")}

# The suffix of a file of stop words.
FILE_SUFFIX = ".txt"

STOP_FILE_BYTES_MAX = 1 << 20

_CODES = {name: code for code, name in _NAMES.items()}
_LANGUAGES: dict[str, Sequence[str]] = {
    "stem": [*STEMMERS],
    "lemmas": LEMMAS,
    "stop_words": [*STOP_LISTS],
}
_LIBRARIES = {"stem": "snowballstemmer", "lemmas": "simplemma", "stop_words": "stop-words"}


def check_language(code: str | None, option: str) -> str | None:
    """Return the value of an option of words if it is valid: None, a language's code, or a file.

    Otherwise raise its fault.

    option  stem, lemmas or stop_words; only stop_words may be a file
    """
    codes = _LANGUAGES[option]
    if code is None or code in codes or not _uses(option, code):
        return code
    suggestion = _CODES.get(code.lower())
    if suggestion in codes:
        raise fault(f"expected the code of a language, found {code}; did you mean {suggestion}?")
    raise fault(unknown(code, codes, "language"))


def libraries_of(parameters: object) -> dict[str, str]:
    """Return the versions of the libraries that parameters of features use, by library."""
    return {
        name: version(name)
        for option, name in _LIBRARIES.items()
        if _uses(option, getattr(parameters, option, None))
    }


def _uses(option: str, value: str | None) -> bool:
    return value is not None and not (option == "stop_words" and value.endswith(FILE_SUFFIX))


def _imported(option: str, name: str) -> ModuleType:
    """Return a module of the extra `languages`. Raises BadParameter if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise BadParameter(f"features.{option} needs {_LIBRARIES[option]}: {EXTRA}") from None


def stemmer_of(code: str) -> Callable[[str], str]:
    """Return a function that stems a word of a language. One thread at a time may call it.

    Raises BadParameter if the library is not installed.
    """
    stem: Callable[[str], str] = (
        _imported("stem", "snowballstemmer").stemmer(STEMMERS[code]).stemWord
    )
    return stem


def lemmas_of(code: str) -> Callable[[str], str]:
    """Return a function that returns the lemma of a word of a language.

    One thread at a time may call it. Raises BadParameter if the library is not installed.
    """

    strategies = _imported("lemmas", "simplemma.strategies")
    dictionaries = _imported("lemmas", "simplemma.strategies.dictionaries")
    # for Finnish this dictionary takes 50 MiB, the default one 440 MiB, at the same speed
    lemmatizer = _imported("lemmas", "simplemma").Lemmatizer(
        cache_max_size=1,
        lemmatization_strategy=strategies.DefaultStrategy(
            dictionary_factory=dictionaries.LOW_MEMORY_DICTIONARY_FACTORY
        ),
    )
    return lambda word: str(lemmatizer.lemmatize(word, code))


def stop_list(words: str) -> list[str]:
    """Return the stop words of a language or a file, which has one word a line.

    words  a language's code, or a path with FILE_SUFFIX

    Raises BadParameter if the library is not installed, BadData for a file that cannot be read.
    """
    if not words.endswith(FILE_SUFFIX):
        return list(_imported("stop_words", "stop_words").get_stop_words(words, cache=False))
    try:
        refuse_special(Path(words))
        with Path(words).open("rb") as file:
            data = file.read(STOP_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadData(f"{words}: expected a file of stop words, found: {error.strerror}") from error
    if len(data) > STOP_FILE_BYTES_MAX:
        raise BadData(
            f"{words}: expected at most {STOP_FILE_BYTES_MAX} bytes of stop words, found more"
        )
    try:
        return data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BadData(f"{words}: expected UTF-8, found another byte at {error.start}") from error
