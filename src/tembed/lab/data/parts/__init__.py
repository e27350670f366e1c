"""A generated world with known parts: pictures of ten classes that are built of shared, drawn parts.

``world`` has the design and `generate`, ``scenes`` composes a picture, ``bodies`` places the parts of each class,
``shapes`` draws each part, and ``canvas`` is the rasteriser.
"""

from tembed.lab.data.parts.world import CLASSES as CLASSES
from tembed.lab.data.parts.world import OWNERS as OWNERS
from tembed.lab.data.parts.world import PARTS as PARTS
from tembed.lab.data.parts.world import PARTS_OF as PARTS_OF
from tembed.lab.data.parts.world import SUPER_CLASSES as SUPER_CLASSES
from tembed.lab.data.parts.world import draw as draw
from tembed.lab.data.parts.world import generate as generate
