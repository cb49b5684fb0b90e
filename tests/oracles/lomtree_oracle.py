"""Slow and obvious: the online tree of LOMtree with objects and dicts, by algorithm 1
of its paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

f32 = np.float32


@dataclass
class Weight:
    """A feature's weight at a node: v, H, s, kept in 32 bits."""

    v: float = 0.0
    h: float = 0.0
    s: float = 0.0


@dataclass
class Seen:
    """What is known of a class at a node: l, n, m."""

    rows: int = 0
    scored: int = 0
    scores: float = 0.0


@dataclass(eq=False)
class Node:
    """A node; `least` is C of the paper."""

    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    least: int = 0
    rows: int = 0
    classes: dict[int, Seen] = field(default_factory=dict)
    weights: dict[int, Weight] = field(default_factory=dict)
    bias: Weight = field(default_factory=Weight)
    norm: float = 0.0
    trained: int = 0

    def commonest(self) -> int:
        """The rows of the commonest class."""
        return max((seen.rows for seen in self.classes.values()), default=0)


class Lomtree:
    """The tree, learning one row at a time; features and labels of a row are dicts and lists."""

    def __init__(self, splits: int, resistance: float, step: float) -> None:
        self.root, self.splits_left, self.resistance, self.step = Node(), splits, resistance, step
        self.swaps = 0
        self.has_split = False

    def score(self, node: Node, x: dict[int, float]) -> float:
        """h(x)."""
        total = float(node.bias.v)
        for feature, value in x.items():
            if feature in node.weights:
                total += float(f32(node.weights[feature].v) / f32(node.weights[feature].s)) * value
        return total

    def learn(self, x: dict[int, float], labels: list[int]) -> None:
        """One row."""
        node = self.root
        while True:
            node.rows += 1
            for label in labels:
                node.classes.setdefault(label, Seen()).rows += 1
            if not node.children:
                if not self.may_split(node):
                    break
                self.split(node)
            score = self.train(node, x, self.direction(node, labels))
            for label in labels:
                node.classes[label].scored += 1
                node.classes[label].scores += score
            node = node.children[1 if score > 0 else 0]
        node.least += 1
        self.refresh(node.parent)

    def direction(self, node: Node, labels: list[int]) -> float:
        """-1 when the mean score of the labels is below the node's mean score."""
        scored = sum(seen.scored for seen in node.classes.values())
        everyone = sum(seen.scores for seen in node.classes.values()) / scored if scored else 0.0
        theirs = [node.classes[label] for label in labels]
        means = [seen.scores / seen.scored if seen.scored else 0.0 for seen in theirs]
        return -1.0 if everyone - sum(means) / len(means) > 1e-9 else 1.0

    def may_split(self, node: Node) -> bool:
        """Whether the leaf is impure, and there is a node left or one to be had by a swap."""
        if all(seen.rows == node.rows for seen in node.classes.values()):
            return False
        if node.parent:
            (sibling,) = (child for child in node.parent.children if child is not node)
            if sibling.rows < min(node.rows / 16, 16):
                return False
        if self.splits_left:
            return True
        return self.has_split and node.least - node.commonest() > self.resistance * (
            self.root.least + 1
        )

    def split(self, node: Node) -> None:
        """Two new leaves; beyond the budget those of the least-used leaf and its parent."""
        if self.splits_left:
            self.splits_left -= 1
            self.has_split = True
        else:
            self.swaps += 1
            leaf = self.root
            while leaf.children:
                leaf = min(leaf.children, key=lambda child: child.least)
            gone = leaf.parent
            assert gone is not None
            sibling = next(child for child in gone.children if child is not leaf)
            sibling.parent = gone.parent
            if gone.parent is None:
                self.root = sibling
            else:
                place = gone.parent.children
                place[place.index(gone)] = sibling
                self.refresh(gone.parent)
        left = Node(parent=node, least=node.least // 2)
        right = Node(parent=node, least=node.least - left.least)
        node.children = [left, right]
        self.refresh(node)

    def refresh(self, node: Node | None) -> None:
        """C of a node and of all above it."""
        while node is not None:
            node.least = min(child.least for child in node.children)
            node = node.parent

    def train(self, node: Node, x: dict[int, float], direction: float) -> float:
        """A normalised adaptive step on the logistic loss; the score after it."""
        score, squares = float(node.bias.v), 1.0
        for feature, value in x.items():
            weight = node.weights.setdefault(feature, Weight())
            size, scale = abs(value), float(weight.s)
            if size > scale:
                weight.h = f32(weight.h) * f32((scale / size) ** 2)
                weight.s = f32(size)
                scale = size
            score += float(weight.v) * (value / scale)
            squares += (value / scale) ** 2
        gradient = 1 / (1 + np.exp(direction * score))
        if gradient < 1e-6:
            return score
        node.norm += squares
        node.trained += 1
        rates = {}
        node.bias.h = f32(node.bias.h) + f32(gradient**2)
        gain = bias_rate = 1 / np.sqrt(float(node.bias.h))
        for feature, value in x.items():
            weight = node.weights[feature]
            scaled = value / float(weight.s)
            weight.h = f32(weight.h) + f32(gradient**2 * scaled**2)
            rates[feature] = scaled / np.sqrt(float(weight.h))
            gain += scaled * rates[feature]
        common = np.sqrt(node.trained / node.norm)
        by = direction * min(self.step * gradient, 2.0 / (gain * common))
        node.bias.v = f32(node.bias.v) + f32(by * common * bias_rate)
        for feature, rate in rates.items():
            node.weights[feature].v = f32(node.weights[feature].v) + f32(by * common * rate)
        return score + by * gain * common
