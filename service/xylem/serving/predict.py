"""The dialect of predict: instances and options in JSON, answered by predictions in JSON."""

from collections.abc import Sequence

import orjson

from xylem.base import Limits
from xylem.engine import AS_PREDICTIONS, FastAnswer, Featurizer, Predictions, PredictOptions
from xylem.serving.answer import SearchDialect
from xylem.serving.answers import ANSWER_END, answer_head, describe_labels, write_predictions
from xylem.serving.dialect import Body, Query, Reply
from xylem.serving.label_info import label_info_options
from xylem.serving.parse import parse_body, parse_predict_and_query
from xylem.serving.rows import ChunkedRows, n_items_of, to_chunked_rows
from xylem.serving.schemas.predict import TUNED, PredictRequest
from xylem.serving.served import ServedVersion


class PredictQuery(Query):
    """A request of predict that has been read."""

    def __init__(self, request: PredictRequest) -> None:
        self.options = self._request = request
        self.n_rows = len(request.instances)

    def n_items(self, featurizer: Featurizer) -> int:
        """Return the size of all instances in items: characters, features or names."""
        items_a_character = featurizer.items_a_character
        return sum(
            [n_items_of(instance, items_a_character) for instance in self._request.instances]
        )

    def to_rows(self, featurizer: Featurizer) -> ChunkedRows:
        """Return the rows of the instances; long texts in chunks if the request asks for them."""
        return to_chunked_rows(self._request.instances, featurizer, self._request.chunk_characters)

    def write(
        self,
        predictions: Predictions,
        chunked: ChunkedRows,
        options: PredictOptions,
        epoch: int,
        served: ServedVersion,
    ) -> FastAnswer:
        """Write the predictions, with the label info and explanations that the request asks for."""
        request = self._request
        info = label_info_options(request, served.info)
        texts: Sequence[str | None] = ()
        if request.explain and chunked.ptr is None:
            texts = [getattr(instance, "text", None) for instance in request.instances]
        labels_json = describe_labels(
            predictions, chunked.rows, served, info, explain=request.explain, texts=texts
        )
        json_predictions = write_predictions(
            predictions, options, epoch, served, labels_json, chunked.unknown
        )
        return FastAnswer(
            len(json_predictions), b",".join(json_predictions), request.threshold == TUNED
        )

    def compared(self) -> Query:
        """Return the request without explanations."""
        return PredictQuery(self._request.model_copy(update={"explain": False}))


class PredictDialect(SearchDialect):
    """Reads and answers requests of predict; their query string may ask for label info."""

    writer = AS_PREDICTIONS

    def wrap(self, fast_answer: FastAnswer, epoch: int, served: ServedVersion) -> Reply:
        """Return a PredictAnswer."""
        head = answer_head(served.name, served.version, epoch)
        return Reply((head, fast_answer.json, ANSWER_END), fast_answer.n_rows, fast_answer.is_tuned)

    def read(self, body: Body, limits: Limits) -> Query:
        """Read a body, with the options of the query string."""
        if not body.header_or_query:
            return PredictQuery(parse_body(body.content, PredictRequest, limits))
        return PredictQuery(
            parse_predict_and_query(body.content, body.header_or_query.encode("latin-1"), limits)
        )

    def first_labels(
        self, reply: bytes, n_json: int | None, n_max: int, served: ServedVersion
    ) -> list[list[str]]:
        """Return the names of the first labels of each prediction."""
        predictions = orjson.loads(reply)["predictions"]
        return [
            [label["label"] for label in prediction["labels"][:n_max]] for prediction in predictions
        ]


PREDICT = PredictDialect()
