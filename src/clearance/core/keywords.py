"""Give helpful errors for keyword arguments that have another name in a similar function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def not_called(wrong: str, right: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator by which calls with the keyword `wrong` raise a TypeError that names the keyword `right`.

    >>> not_called("limits", "limit")(dict)(limits=3)
    Traceback (most recent call last):
    TypeError: dict() has no argument limits=…: give limit=… in its place
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if wrong in kwargs:
                raise TypeError(f"{name}() has no argument {wrong}=…: give {right}=… in its place")
            return function(*args, **kwargs)

        return checked

    return decorate
