"""The trace of a run: arrays over the iterations k = 1..K.

To keep the files of long runs small, not every θ is stored: all of the first M iterates, then every second one up to
2M, every fourth one up to 4M, and so on. M is 8192, or less if θ is long. Which iterates are stored depends only on k
and M.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.array_files import read_arrays
from clearance.core.arrays import Array
from clearance.core.atomic_files import check_schema, save_npz
from clearance.core.data_frames import make_frame
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.core.text import distinct, visible

# M is at most WHOLE and at least FEWEST, and M iterates have about NUMBERS numbers or fewer.
WHOLE, FEWEST, NUMBERS = 8192, 256, 2**26
SCHEMA = "clearance/trace/1"


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Arrays over the iterations of a run.

    theta, lam  θ [K, d] and λ [K, I] before step k; in long runs theta has rows only for the iterates in `kept`
    J_hat       Ĵ [K, 1+I], sampled at θ^k
    omega_norm  the norm of the update direction ω^k of θ [K]
    steps       environment steps [K]
    counts      the weight of θ^k in the mixture that the method returns [K]
    J           the exact values of θ^k [K, 1+I] if they were recorded, else no rows
    """

    theta: Array
    lam: Array
    J_hat: Array
    omega_norm: Array
    steps: NDArray[np.int64]
    counts: Array
    J: Array

    def __repr__(self) -> str:
        """Return a text that needs only the length, so that the columns of a stored trace are not read from files."""
        columns = ", ".join(f.name for f in fields(Trace))
        return f"<{type(self).__name__}: {len(self):,} iterations; {columns}>"

    def __len__(self) -> int:
        return len(self.omega_norm)

    @property
    def kept(self) -> NDArray[np.int64]:
        """The indices of the iterates whose θ is stored, one for each row of `theta`; the first iterate has index 0."""
        return kept_iterates(0, len(self), self.theta.shape[1:])

    def rows_of(self, k: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of `theta` for the iterates with the indices k, without repetitions.

        If the θ of an iterate is not stored, the row is that of the last stored iterate before it.
        """
        return np.unique(np.searchsorted(self.kept, k, side="right") - 1)

    def thinned(self, begin: int) -> Trace:
        """Return this part of a run with only those rows of θ that are stored (`kept_iterates`).

        `begin` is the iteration at which this part starts.
        """
        return replace(self, theta=self.theta[kept_iterates(begin, begin + len(self), self.theta.shape[1:]) - begin])

    def __getitem__(self, part: slice) -> Trace:
        """Return a slice of the iterations. The θ of all iterations must be stored."""
        return Trace(*(getattr(self, f.name)[part] for f in fields(self)))

    @classmethod
    def joined(cls, parts: list[Trace]) -> Trace:
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def columns(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """Return the data of the trace as named columns: the iteration k, then all arrays except θ.

        In J and Ĵ the reward comes first. λ has one column per constraint.
        """
        table: dict[str, Any] = {"k": np.arange(len(self))}
        I = self.lam.shape[1]
        own = distinct(("reward", *map(visible, names or (f"g{i}" for i in range(I)))))
        for f in fields(self):
            values = getattr(self, f.name)
            if f.name == "theta" or len(values) != len(self):  # J of a run that did not record it
                continue
            if values.ndim == 1:
                table[f.name] = values
            else:
                labels = own if values.shape[1] == len(own) else own[1:]
                table |= {f"{f.name}.{label}": values[:, i] for i, label in enumerate(labels)}
        return table

    def to_frame(self, names: Sequence[str] = ()) -> Any:
        """Return the columns as a pandas DataFrame, one row for each iteration; θ is left out."""
        return make_frame(self.columns(names))

    def save(self, path: AnyPath, begin: int = 0, run: str = "") -> None:
        """Write this part of a run as one file; `theta` must be thinned already (see `thinned`).

        `begin` is the first iteration of the part, and `run` the id of the run.
        """
        shape, n = self.theta.shape[1:], len(self)
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        place = {"schema": np.array(SCHEMA), "begin": np.int64(begin), "kept": kept_iterates(begin, begin + n, shape)}
        save_npz(path, place | {"run": np.array(run)} | columns, compressed=False)

    @classmethod
    def load(cls, path: AnyPath, run: str | None = None) -> Trace:
        """Read a trace file. If the id `run` of a run is given, raise InputError if the file belongs to another run."""
        columns = [f.name for f in fields(cls)]
        return cls(**_columns(path, columns, run))


class StoredTrace(Trace):
    """The trace of a run folder, read on demand: each access to a column reads this column from the trace files.

    Columns are not kept in memory.
    """

    def __init__(self, files: Sequence[AnyPath], tail: Trace | None, n: int) -> None:
        for name, value in (("files", files), ("tail", tail), ("n", n)):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return self.n  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        if name not in (f.name for f in fields(Trace)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        parts = [read_arrays(path, (name,), packed=False)[name] for path in self.__dict__["files"]]
        tail = self.__dict__["tail"]
        return np.concatenate(parts if tail is None else [*parts, getattr(tail, name)])


def _columns(path: AnyPath, names: list[str], run: str | None) -> dict[str, NDArray[Any]]:
    z = read_arrays(path, ("schema", "run", *names), packed=False)
    check_schema(path, z.get("schema"), SCHEMA)
    missing = [name for name in names if name not in z]
    if missing:
        raise InputError(f"{path}: {missing[0]} is missing; a trace has {', '.join(f.name for f in fields(Trace))}")
    if run is not None and str(z.get("run")) != run:
        raise InputError(f"{path}: belongs to another run")
    return {name: z[name] for name in names}


def count_iterations(path: AnyPath, run: str) -> int:
    """Return the number of iterations in a trace file of the run with the id `run`, without reading θ."""
    return len(_columns(path, ["omega_norm"], run)["omega_norm"])


def kept_iterates(begin: int, end: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the iterates in begin .. end − 1 whose θ is stored: all k < M, then every second, every fourth and so on.

    M depends on the shape of θ, as the docstring of the module explains.
    """
    M = int(np.clip(NUMBERS // max(int(np.prod(shape)), 1), FEWEST, WHOLE))
    k = np.arange(begin, end, dtype=np.int64)
    doublings = np.frexp((k // M).astype(float))[1].astype(np.int64)  # 0, 1, 2, 2, 3, 3, 3, 3, … for k // M = 0, 1, …
    return k[k % (1 << doublings) == 0]


def running_average(x: Array) -> Array:
    """Return x̄_k = (x_1 + … + x_k)/k along the first axis, which the figures of Bai et al. 2023 show."""
    k = np.arange(1, len(x) + 1).reshape(-1, *[1] * (x.ndim - 1))
    return np.cumsum(x, axis=0) / k
