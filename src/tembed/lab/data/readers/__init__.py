"""Readers for every form in which images are published: they turn bytes on disk into labelled images.

``archives`` opens a folder, a zip or a tar; ``decoding`` decodes all images of an archive; ``pickles`` reads pickles
without running them. ``folders``, ``cifar`` and ``mini_imagenet`` each read one kind of files and return a `Reading`,
defined in ``reading``.
"""
