"""Xylem in Python: models in this process, and clients of a server.

    model = xylem.train(texts, labels)
    model.predict(["a text editor for the terminal"], top_r=3)
    model.save("store", "debtags")

    import xylem

    with xylem.Client("http://127.0.0.1:8080") as client:
        answer = client.predict("debtags", ["a text editor for the terminal"], top_r=3)

The import is fast: what a name needs is imported at its first use.
"""

from xylem_store import face_of

_import_name, __dir__, __all__ = face_of(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import what `name` is, at its first use."""
    try:
        return _import_name(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sklearn":
            raise
        raise ImportError(
            f"xylem.{name} needs scikit-learn: pip install 'xylem-serve[sklearn]'"
        ) from None
