"""Readers for every layout in which images are published: they turn bytes on disk into labelled images.

``archives`` opens a folder, a zip or a tar; ``image_files`` decodes a picture, and ``decoding`` all of an archive;
``pickles`` reads pickles without running them. ``folders``, ``cifar`` and ``mini_imagenet`` each read a layout and
return a `Reading`, defined in ``reading``.
"""
