"""NaN values in a document: no comparison holds for them, and JSON has no value for them."""

from __future__ import annotations

import math

from ullage.model.error import invalid


def refuse_nan(document: object, path: str = "") -> None:
    """Refuse a NaN anywhere in a value from TOML or JSON."""
    match document:
        case float() if math.isnan(document):
            raise invalid(path, document, "write a number")
        case dict():
            for name, value in document.items():
                refuse_nan(value, f"{path}.{name}" if path else str(name))
        case list():
            for index, value in enumerate(document):
                refuse_nan(value, f"{path}[{index}]")
