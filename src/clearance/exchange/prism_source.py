"""Read models in PRISM's language, built by Storm through stormpy if it is installed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from clearance.core.errors import InputError, MissingExtraError
from clearance.exchange.explicit_model import ExplicitModel
from clearance.exchange.text_lines import read_bytes
from clearance.exchange.umb_format import read_umb


def read_prism_source(path: str | Path) -> ExplicitModel:
    """Build all reachable states of a PRISM model, and return it with all of its rewards.

    Constants must have values in the file.
    """
    stormpy = _import_stormpy()
    read_bytes(path)  # raises our own error if the file is missing
    try:
        program = stormpy.parse_prism_program(str(path))
        options = stormpy.BuilderOptions(build_full=True)
        options.set_build_choice_labels(True)
        options.set_build_state_valuations(True)
        built = stormpy.build_model(program, options=options)
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "model.umb"
            stormpy.io.export_to_umb(built, str(archive))
            return _rename(read_umb(archive), str(path))
    except (RuntimeError, TypeError, AttributeError) as e:
        raise InputError(f"{path}: Storm cannot build it: {' '.join(str(e).split())[:300]}") from None


def _import_stormpy() -> Any:
    try:
        import stormpy  # type: ignore[import-not-found]
        import stormpy.io  # type: ignore[import-not-found]
    except ImportError:
        raise MissingExtraError("stormpy", "storm") from None
    return stormpy


def _rename(model: ExplicitModel, source: str) -> ExplicitModel:
    from dataclasses import replace

    return replace(model, source=source)
