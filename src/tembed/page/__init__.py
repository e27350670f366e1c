"""A page that shows every patch of an analysis as a picture on a map, in a folder that opens by double click."""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.page.build import build_page as build_page

__getattr__, __dir__, __all__ = lazy("tembed.page", {"build_page": "build"})
