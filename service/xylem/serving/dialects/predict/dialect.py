"""The dialect of predict: instances and options in JSON, answered by predictions in JSON."""

import orjson

from xylem.base import READ, Limits, StageTimings
from xylem.engine import Featurizer, Predictions, PredictOptions
from xylem.serving.dialects.dialect import Body, Longer, Query, Reply
from xylem.serving.dialects.predict.fast_request import FastAnswer, RowsRead
from xylem.serving.dialects.predict.schema import TUNED, PredictRequest
from xylem.serving.dialects.predict.writing import (
    ANSWER_END,
    answer_head,
    describe_labels,
    write_predictions,
)
from xylem.serving.dialects.search import SHORT_BEAMS, SearchDialect, body_query_of
from xylem.serving.label_info import label_info_options
from xylem.serving.live.served import ServedVersion
from xylem.serving.parse import parse_body, parse_predict_and_query
from xylem.serving.rows import ChunkedRows, n_items_of, to_chunked_rows


class PredictQuery(Query):
    """A request of predict that has been read."""

    def __init__(self, request: PredictRequest) -> None:
        self.options = self._request = request
        self.n_rows = len(request.instances)

    def n_items(self, featurizer: Featurizer) -> int:
        return sum([n_items_of(instance, featurizer) for instance in self._request.instances])

    def to_rows(self, featurizer: Featurizer) -> ChunkedRows:
        """Return the rows of the instances; long texts in chunks if the request asks for them."""
        return to_chunked_rows(self._request.instances, featurizer, self._request.chunk_characters)

    def reply(
        self,
        predictions: Predictions,
        chunked: ChunkedRows,
        options: PredictOptions,
        epoch: int,
        served: ServedVersion,
    ) -> Reply:
        """Return the predictions, with the label info and explanations that are requested."""
        request = self._request
        info = label_info_options(request, served.info)
        json_predictions = write_predictions(
            predictions,
            options,
            epoch,
            served,
            describe_labels(predictions, chunked, served, info, explain=request.explain),
            chunked.unknown,
        )
        return _reply(
            FastAnswer(
                len(json_predictions), b",".join(json_predictions), request.threshold == TUNED
            ),
            epoch,
            served,
        )

    def compared(self) -> Query:
        """Return the request without explanations."""
        return PredictQuery(self._request.model_copy(update={"explain": False}))


class PredictDialect(SearchDialect):
    """Reads and answers requests of predict; their query string may ask for label info."""

    def answer(
        self, body: Body, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        """Do as `Dialect.answer`: a kernel reads bodies without a query string."""
        if body.header_or_query is None:
            epoch = served.thresholds.epoch
            answer = served.fast.answer(
                body.message, body.start, served.ids.sign(epoch, SHORT_BEAMS)
            )
            if answer is not None:
                if timings.is_traced:
                    timings.add_kernel_times(served.fast.times)
                return _reply(answer, epoch, served)
        timings.begin()
        query = self.read(body, limits)
        timings.end(READ)
        return self.answer_read(query, served, limits, timings)

    def answer_rows(
        self, query: Query, chunked: ChunkedRows, served: ServedVersion
    ) -> Reply | None:
        rows = chunked.rows
        body_query = body_query_of(query.options, rows.n_rows, len(rows.indices))
        if body_query is None or chunked.unknown:
            return None
        epoch = served.thresholds.epoch
        answer = served.fast.answer_rows(
            RowsRead(rows, *body_query), served.ids.sign(epoch, SHORT_BEAMS)
        )
        return None if answer is None else _reply(answer, epoch, served)

    def read(self, body: Body, limits: Limits) -> Query:
        """Read a body, with the options of the query string."""
        return PredictQuery(
            parse_predict_and_query(body.content, body.header_or_query.encode("latin-1"), limits)
            if body.header_or_query
            else parse_body(body.content, PredictRequest, limits)
        )

    def first_labels(
        self, reply: bytes, n_json: int | None, n_max: int, served: ServedVersion
    ) -> list[list[str]]:
        return [
            [label["label"] for label in prediction["labels"][:n_max]]
            for prediction in orjson.loads(reply)["predictions"]
        ]


PREDICT = PredictDialect()


def _reply(answer: FastAnswer, epoch: int, served: ServedVersion) -> Reply:
    return Reply(
        (answer_head(served.name, served.version, epoch), answer.json, ANSWER_END),
        answer.n_rows,
        answer.is_tuned,
    )
