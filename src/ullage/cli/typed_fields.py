"""Errors of the server with the options that were typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ullage.model.error import InvalidRequest, NotFound


@contextmanager
def as_typed(options: Mapping[str, str]) -> Iterator[None]:
    """Replace fields in errors of the server, the keys of `options`, by the options that set them.

    Raises:
        InvalidRequest: the error of the server, with `--limit tflops: ...` for `limit.tflops: ...`.

    """
    try:
        yield
    except NotFound:
        raise
    except InvalidRequest as error:
        message = error.message
        for field, option in options.items():
            message = re.sub(rf"(?<![-.\w]){re.escape(field)}\.(?=\w)", f"{option} ", message)
            message = re.sub(rf"^{re.escape(field)}:", f"{option}:", message)
        raise InvalidRequest(message, code=error.code, field=error.field) from None
