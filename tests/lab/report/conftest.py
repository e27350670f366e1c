"""The small datasets of the training tests, and summaries of runs with made-up results."""

from support.fixtures import use_worlds as use_worlds
from support.fixtures import worlds as worlds
from support.summaries import put as put
