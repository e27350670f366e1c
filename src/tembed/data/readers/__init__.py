"""Readers for every layout in which images are published: they turn bytes on disk into labelled images.

``archives`` opens a folder, a zip or a tar; ``images`` decodes a picture, and ``decoding`` all of an archive;
``pickles`` reads pickles without running them. ``folders``, ``cifar`` and ``mini_imagenet`` each read a layout and
return a `Reading`, defined in ``reading``. Names are imported when first used.
"""

from typing import TYPE_CHECKING

from tembed.lazy import lazy

if TYPE_CHECKING:
    from tembed.data.readers.archives import Archive as Archive
    from tembed.data.readers.archives import open_archive as open_archive
    from tembed.data.readers.images import decode as decode
    from tembed.data.readers.images import decode_batch as decode_batch
    from tembed.data.readers.pickles import read_pickle as read_pickle
    from tembed.data.readers.reading import Chunk as Chunk
    from tembed.data.readers.reading import Origin as Origin
    from tembed.data.readers.reading import Reading as Reading

_HOME = {
    "Archive": "archives",
    "Chunk": "reading",
    "Origin": "reading",
    "Reading": "reading",
    "decode": "images",
    "decode_batch": "images",
    "open_archive": "archives",
    "read_pickle": "pickles",
}

__getattr__, __dir__, __all__ = lazy("tembed.data.readers", _HOME)
