"""The words for values, where the HTTP package looks for them."""

from service.what_is import SHOWN, shortened, what_is

__all__ = ["SHOWN", "shortened", "what_is"]
