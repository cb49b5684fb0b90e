"""The predictor of combined versions: members and names of concepts propose labels, and a ranker
scores them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from xylem.base import SparseRows, offsets
from xylem.engine.answering import empty_answers
from xylem.engine.buffers import Need
from xylem.engine.embedded_predictor import EmbeddedPredictor
from xylem.engine.explain import CombinedExplanation, Explanation, MemberExplanation
from xylem.engine.features.combined import CombinedFeaturizer, members_of
from xylem.engine.forest_predictor import ForestPredictor
from xylem.engine.kernels.search.call import Answers, set_answers
from xylem.engine.kernels.search.combined import (
    CombinedWorkspace,
    Member,
    combined_rows,
    describe_candidates,
)
from xylem.engine.kernels.search.near_rows import BEST, GROUPS, LISTED_ROWS, N_NEAR, NearSearch
from xylem.engine.kernels.search.ranker_trees import BLOCK, trees_of
from xylem.engine.options import PredictOptions
from xylem.engine.predictor import Predictor
from xylem.engine.searcher import LabelSearcher, Searcher
from xylem_store import (
    F32,
    I32,
    LANES,
    MEMBER_FEATURES,
    NEAREST,
    U8,
    Model,
    Proposing,
    assemble_near,
    assemble_ranker,
    handle,
    handle_of,
    has_near,
    map_name,
    proposing_of,
)


class CombinedPredictor(LabelSearcher):
    """Predicts the labels of rows with one opened combined version. Several threads may call it.

    A label's score is the one that the ranker gives it, or 0 if neither a member nor the label's
    names propose it. By this definition the answers are always exact. The beam width of a request
    has no effect: the members search with the beam width that the version has stored.
    """

    traversal = staticmethod(combined_rows)

    def __init__(self, model: Model, members: Sequence[Searcher]) -> None:
        """Make a predictor of an opened model, whose arrays have been checked.

        members  the predictors of its members
        """
        self._parts = _Parts(model, members)
        super().__init__(model, partial(_make_buffers, self._parts))
        self.members = members

    def candidates(self, rows: SparseRows, row: int) -> tuple[I32, F32]:
        """Return the labels that are ranked for one row, and their features.

        They are int32[n] and float32[n, F].
        """
        with self._row(rows, row) as buffers:
            candidate = buffers.traversal_buffers.candidate
            features = np.empty((len(candidate), len(self._parts.ranker.linear) - 1), np.float32)
            n = describe_candidates(buffers.call, features)
            return candidate[:n].copy(), features[:n].copy()

    def explain(self, rows: SparseRows, row: int, label: int) -> CombinedExplanation:
        """Return the explanation of a label's score for one row of `rows`, member by member.

        Cost: that of predicting the row, and of an explanation by each member that has the label.
        """
        labels, features = self.candidates(rows, row)
        place = np.flatnonzero(labels == label)
        label_features = features[place[0]] if len(place) else None
        members = []
        for number, (member, to_label) in enumerate(
            zip(self.members, self._parts.to_label, strict=True)
        ):
            member_labels = np.flatnonzero(to_label == label)
            explanation = (
                _explained(
                    member,
                    self._parts.featurizer.member_rows(rows, row, number),
                    int(member_labels[0]),
                )
                if len(member_labels)
                else None
            )
            offset = len(MEMBER_FEATURES) * number
            members.append(
                MemberExplanation(
                    *self._parts.proposal_of(number, label_features, offset), explanation
                )
            )
        first = len(MEMBER_FEATURES) * len(self.members)
        last = first + self._parts.proposing.name_features
        return CombinedExplanation(
            members, label_features is not None and bool(label_features[first:last].any())
        )

    @property
    def nodes_explained(self) -> int:
        return sum(member.nodes_explained for member in self.members)

    def children_scored(self, beam_width: int) -> int:
        """Return a bound on the children that the members score for a row and level, plus the
        number of candidates.
        """
        proposing = self._parts.proposing
        children = sum(member.children_scored(proposing.beam_width) for member in self.members)
        return children + len(self.members) * proposing.candidates

    def warm_up(self) -> None:
        for member in self.members:
            member.warm_up()
        super().warm_up()

    def label_mask(self, allowed: U8) -> U8:
        """Return the mask of the labels, followed by the mask of each member."""
        masks = [
            member.label_mask(np.where(to_label >= 0, allowed[to_label], 0).astype(np.uint8))
            for member, to_label in zip(self.members, self._parts.to_label, strict=True)
        ]
        return np.concatenate([allowed, *masks])

    def _options_for(self, row: SparseRows, labels: I32) -> PredictOptions:
        return PredictOptions(top_r=self._parts.candidates_max(len(row.indices)))


class _Parts:
    """The parts of a combined version from which its buffers are made.

    It does not refer to the version's searcher, so that there is no cycle (see `Searcher`).
    """

    def __init__(self, model: Model, members: Sequence[Searcher]) -> None:
        manifest = model.manifest
        arrays = model.arrays
        self.members = members
        self.proposing: Proposing = proposing_of(arrays)
        self.ranker = assemble_ranker(manifest, arrays)
        self.trees = trees_of(self.ranker)
        self.n_labels = manifest.n_labels
        self.featurizer = CombinedFeaturizer(members_of(model))
        self.to_label = [arrays[map_name(number)] for number in range(len(members))]
        self.has_label = np.zeros((len(members), self.n_labels), np.int32)
        for number, labels in enumerate(self.to_label):
            self.has_label[number, labels[labels >= 0]] = 1
        counts = arrays.get("labels/counts", np.zeros(self.n_labels, np.int64))
        self.has_near, self.near = has_near(arrays), assemble_near(self.n_labels, arrays)
        block = self.featurizer.blocks[0]
        n_words = block.end - block.makes.tail_features  # near rows are found by words
        n_rows = np.zeros(n_words if self.has_near else 0, np.int64)
        n_rows[self.near.feature] = np.diff(self.near.feature_ptr)
        # it has an element for every column, so that kernels need not search for a column
        self.feature_ptr = offsets(n_rows)
        self.usage = np.log1p(counts).astype(np.float32)
        masks = [member.label_mask(np.ones(member.n_labels, np.uint8)) for member in members]
        self.mask_sizes = [len(mask) for mask in masks]

    def proposal_of(
        self, number: int, features: F32 | None, offset: int
    ) -> tuple[np.float32 | None, int | None]:
        """Return the score and the rank, from 1, with which a member proposed a label.

        Both are None if it did not propose the label.

        number    the member's number
        features  the label's features as a candidate, the member's from `offset` on; None if it is
                  no candidate
        """
        if features is None:
            return None, None
        rank = round(float(np.exp(features[offset + 1])))
        if rank > min(self.proposing.candidates, self.members[number].n_labels):
            return None, None
        return np.exp(features[offset]), rank

    def candidates_max(self, n_features: int) -> int:
        """Return a bound on the candidates of a row of n_features features."""
        proposed = sum(min(self.proposing.candidates, member.n_labels) for member in self.members)
        return proposed + (n_features if self.proposing.name_features else 0)


@handle
class _OwningWorkspace(CombinedWorkspace):
    """A workspace that keeps alive the structs that its handles refer to."""


def _make_buffers(parts: _Parts, need: Need) -> CombinedWorkspace:
    n_members = len(parts.members)
    n_candidates = parts.candidates_max(need.n_features)
    calls = []
    first_mask = parts.n_labels
    for number in range(n_members):
        calls.append(_member_of(parts, number, need.n_features, first_mask))
        first_mask += parts.mask_sizes[number]
    n_features = len(parts.ranker.linear) - 1
    last_block = parts.featurizer.blocks[-1]
    near = _near_search(parts, n_candidates)
    workspace = _OwningWorkspace(
        members=np.stack([handle_of(member) for member, _ in calls]),
        n_named=parts.proposing.name_features,
        names_first=last_block.end,
        has_label=parts.has_label,
        usage=parts.usage,
        near=handle_of(near),
        linear=parts.ranker.linear,
        trees=handle_of(parts.trees),
        slot=np.full(parts.n_labels, -1, np.int32),
        candidate=np.empty(n_candidates, np.int32),
        rank=np.empty((n_candidates, n_members), np.int32),
        named_at=np.empty(n_candidates, np.int64),
        matrix=np.empty((n_features, BLOCK), np.float32),
        margin=np.empty(BLOCK, np.float32),
        best_score=np.empty(need.top_r, np.float32),
        best_label=np.empty(need.top_r, np.int32),
        entry_node=np.empty(1, np.int32),
        entry_row=np.empty(1, np.int32),
    )
    vars(workspace)["held"] = *calls, near
    return workspace


def _near_search(parts: _Parts, n_candidates: int) -> NearSearch:
    n_rows = len(parts.near.scale)
    n_vectors = -(-n_rows // LANES)
    is_listed = n_rows > LISTED_ROWS
    scale = np.pad(parts.near.scale, (0, n_vectors * LANES - n_rows))
    arrays = parts.near._asdict() | {"feature_ptr": parts.feature_ptr, "scale": scale}
    del arrays["feature"]
    return NearSearch(
        **arrays,
        n_columns=len(parts.feature_ptr) - 1,
        features=np.empty((n_candidates if parts.has_near else 0, N_NEAR), np.float32),
        best=np.empty(BEST, np.int32),
        cosine=np.zeros(n_vectors * LANES, np.float32),
        block=np.arange(n_vectors + 1, dtype=np.int32)[: n_vectors + is_listed],
        is_listed=np.zeros(n_vectors * is_listed, np.uint8),
        greatest=np.empty(GROUPS, np.float32),
        best_cosine=np.empty(NEAREST, np.float32),
        best_row=np.empty(NEAREST, np.int32),
    )


def _member_of(parts: _Parts, number: int, n_features: int, first_mask: int) -> tuple[Member, Any]:
    """Return the Member of a number, with buffers for one row at a time, and what its handles
    refer to.
    """
    member = parts.members[number]
    proposing = parts.proposing
    block = parts.featurizer.blocks[parts.featurizer.of_member[number]]
    options = PredictOptions(top_r=proposing.candidates, beam_width=proposing.beam_width)
    address, buffers = member.row_buffers(options, n_features)
    places = empty_answers(1, min(proposing.candidates, member.n_labels))
    answers = Answers(*places, np.zeros((1, 2), np.int64))
    set_answers(buffers.answers, *answers)
    record = Member(
        address=address,
        call=buffers.call,
        rows=buffers.rows,
        search=buffers.search,
        first=block.first,
        last=block.end,
        allowed_first=first_mask,
        allowed_last=first_mask + parts.mask_sizes[number],
        to_label=parts.to_label[number],
        indptr=np.zeros(2, np.int64),
        indices=np.empty(n_features, np.int32),
        counts=answers.counts,
        labels=answers.labels,
        scores=answers.scores,
        costs=answers.costs,
    )
    return record, (buffers, answers)


def _explained(member: Searcher, rows: SparseRows, label: int) -> Any:
    """Return a member's explanation of a label.

    A member that takes dense rows is explained without features: dimensions have no names.
    """
    if not isinstance(member, EmbeddedPredictor):
        return member.explain(rows, 0, label)
    trees = Predictor.explain(member, rows, 0, label).trees
    return Explanation([[node._replace(features=[]) for node in path] for path in trees])


def make_predictor(model: Model) -> Searcher:
    """Return the predictor of an opened model, whose arrays have been checked."""
    if model.manifest.kind == "combined":
        return CombinedPredictor(model, [make_predictor(member) for member in members_of(model)])
    if model.manifest.kind == "decision-tree":
        return ForestPredictor(model)
    return EmbeddedPredictor(model) if model.manifest.link == "softmax" else Predictor(model)
